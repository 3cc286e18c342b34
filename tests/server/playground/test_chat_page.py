"""Chats on the page: calls that are answered, results, conversations, files."""

from __future__ import annotations

import builtins
import json
import re
import subprocess
from types import SimpleNamespace
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from unbraid.engines.replay import script

from ...support.browser import page_of
from ...support.real_tokenizers import encode
from ...support.scripted_server import Scripted
from .pages import (
    CALL,
    TOOLS,
    copied,
    linked,
    show,
    spelled,
    unpacked,
)

pytestmark = pytest.mark.system


def test_a_call_is_answered_by_hand_and_the_chat_goes_on(page: Page, running: Scripted) -> None:
    running.say(CALL, chunks=12)
    show(page, "chat")
    page.get_by_text("Settings").click()
    page.get_by_label("Tools, as JSON").fill(json.dumps(TOOLS))
    page.get_by_label("Your message").fill("What is the weather?")
    page.keyboard.press("Enter")
    turn = page.locator(".turn.assistant")
    expect(turn.locator(".pill").first).to_have_text("tool_calls")
    expect(turn.locator(".arguments")).to_have_text(re.compile(r'"city": "Paris"'))
    expect(turn.locator("details.reasoning")).to_contain_text("They ask.")
    ids = encode(running.tokenizer, CALL)
    turn.get_by_text("What the model wrote").click()
    expect(turn.locator(".tokens span")).to_have_count(len(ids))
    spelled(page, ".turn.assistant .raw .seg", CALL)
    spelled(page, ".turn.assistant .raw .seg.reasoning", "They ask.")
    turn.get_by_text("The prompt that the template made").click()
    spelled(page, ".turn.assistant .prompt", running.prompt())
    running.choose = lambda _: script(encode(running.tokenizer, "It rains."))
    page.get_by_label("Your answer to get_weather").fill('{"rain": true}')
    page.get_by_role("button", name="Answer the call").click()
    expect(page.locator(".turn").last).to_contain_text("It rains.")
    assert '{"rain": true}' in running.prompt()


def test_what_the_model_writes_is_shown_while_it_writes(page: Page, running: Scripted) -> None:
    begun = CALL[: CALL.index("Paris")]
    ids = encode(running.tokenizer, begun)
    running.choose = lambda _: script(ids, chunks=4, ending=None)
    show(page, "chat")
    page.get_by_label("Your message").fill("What is the weather?")
    page.get_by_role("button", name="Send").click()
    turn = page.locator(".turn.assistant")
    turn.get_by_text("What the model wrote").click()
    spelled(page, ".turn.assistant .raw .seg", begun)
    spelled(page, ".turn.assistant .raw .seg.content", "One moment.")
    expect(turn.locator(".pill")).to_have_text("writes")
    show(page, "constrain")
    show(page, "chat")  # it has gone on meanwhile
    expect(turn.locator(".pill")).to_have_text("writes")
    turn.get_by_text("What the model wrote").click()
    page.get_by_role("button", name="Stop").click()
    expect(turn.locator(".pill")).to_have_text("stopped")
    expect(turn.locator(".tokens span")).to_have_count(len(ids))


def test_a_result_is_a_form_by_its_schema(page: Page, running: Scripted) -> None:
    fields = {"rain": {"type": "boolean"}, "degrees": {"type": "number"}, "sky": {"enum": ["grey", "blue"]}}
    fields |= {"notes": {"type": "string"}, "hours": {"type": "array"}}
    tool = {**TOOLS[0]["function"], "returns": {"type": "object", "properties": fields, "required": ["rain"]}}
    running.say(CALL)
    show(page, "chat")
    page.get_by_text("Settings").click()
    page.get_by_label("Tools, as JSON").fill(json.dumps([{"type": "function", "function": tool}]))
    page.get_by_label("Your message").fill("What is the weather?")
    page.get_by_role("button", name="Send").click()
    page.get_by_label("rain", exact=True).select_option("true")
    page.get_by_label("degrees (optional)").fill("11.5")
    page.get_by_label("sky (optional)").select_option(label="grey")
    page.get_by_label("hours (optional)").fill("[1, 2]")
    running.say("It rains.")
    page.get_by_role("button", name="Answer the call").click()
    expect(page.locator(".turn").last).to_contain_text("It rains.")
    assert '{"rain":true,"degrees":11.5,"sky":"grey","hours":[1,2]}' in running.prompt()


def test_conversations_are_kept_and_can_be_deleted(page: Page, running: Scripted) -> None:
    running.say("Hello there.")
    show(page, "chat")
    page.get_by_text("Conversations").click()
    for text in ("First things first", "And now the second"):
        page.get_by_role("button", name="New conversation").click()
        page.get_by_label("Your message").fill(text)
        page.get_by_role("button", name="Send").click()
        expect(page.locator(".turn.assistant .pill")).to_have_text("stop")
    page.reload()
    page.get_by_role("button", name="First things first", exact=True).click()
    expect(page.locator(".turn.user")).to_have_text("YouFirst things first")
    expect(page.locator(".turn.assistant")).to_contain_text("Hello there.")
    page.get_by_role("button", name="Delete “First things first”").click()
    expect(page.locator(".conversations li")).to_have_count(1)
    expect(page.locator(".turn")).to_have_count(0)


def test_files_go_with_a_message(page: Page, running: Scripted) -> None:
    running.say("I see.")
    show(page, "chat")
    picker = page.get_by_label("Files to attach")
    picker.set_input_files({"name": "cat.png", "mimeType": "image/png", "buffer": b"\x89PNG\x00\xff"})
    expect(page.locator("#status")).to_contain_text("cat.png is no text")
    picker.set_input_files({"name": "notes.txt", "mimeType": "text/plain", "buffer": "Über 🦙".encode()})
    expect(page.locator(".composer .chips li")).to_contain_text("notes.txt")
    page.get_by_label("Your message").fill("What is it about?")
    page.get_by_role("button", name="Send").click()
    expect(page.locator(".turn.assistant")).to_contain_text("I see.")
    assert "notes.txt:\n\nÜber 🦙\n\nWhat is it about?" in running.prompt()
    expect(page.locator(".turn.user .file")).to_contain_text("notes.txt")
    expect(page.locator(".composer .chips li")).to_have_count(0)


def test_a_turn_can_be_copied_as_a_command_and_as_a_program(browser: Browser, running: Scripted) -> None:
    running.say("It's fine.")
    permissions = ["clipboard-read", "clipboard-write"]
    with page_of(browser, permissions=permissions) as page:
        page.goto(running.server.url)
        show(page, "chat")
        page.get_by_label("Your message").fill('How\'s "it"?\n🦙')
        page.get_by_role("button", name="Send").click()
        expect(page.locator(".turn.assistant")).to_contain_text("It's fine.")
        page.get_by_role("button", name="This turn as curl").click()
        command = copied(page, "curl ")
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
        assert "data: [DONE]" in done.stdout, done.stderr
        assert "🦙" in running.prompt()
        page.get_by_role("button", name="This turn as Python").click()
        program = copied(page, "OpenAI(")
        calls: list[dict[str, Any]] = []
        client = SimpleNamespace(create=lambda **fields: [calls.append(fields)][1:])  # type: ignore[func-returns-value]
        openai = SimpleNamespace(OpenAI=lambda **_: SimpleNamespace(chat=SimpleNamespace(completions=client)))
        exec(program, {"__builtins__": {**vars(builtins), "__import__": lambda *_: openai}})
        assert calls[0]["messages"] == [{"role": "user", "content": 'How\'s "it"?\n🦙'}]
        assert calls[0]["stream"] is True


def test_a_server_with_a_key_is_asked_with_it(browser: Browser) -> None:
    scripted = Scripted()
    scripted.service.api_keys = ("secret",)
    scripted.server.start()
    try:
        with page_of(browser) as page:
            page.goto(scripted.server.url)
            dialog = page.get_by_role("dialog")
            expect(dialog).to_be_visible()
            page.get_by_label("API key", exact=True).fill("wrong")
            page.keyboard.press("Enter")
            expect(dialog).to_contain_text("not one of this server's")
            page.get_by_label("API key", exact=True).fill("secret")
            page.get_by_role("button", name="Use it").click()
            expect(page.locator(".badge.good")).to_be_visible()
            assert "secret" not in json.dumps(unpacked(linked(page, lambda held: held["apart"]["text"] != "")))
    finally:
        scripted.server.stop()
