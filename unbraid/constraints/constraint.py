"""What one response may be, in the syntaxes of the engines that enforce it: the public `Constraint`.

A constraint holds its language and prints it when asked, once for each syntax. Constraints are kept for requests that
ask for the same (`constraint`), so what is printed for one request is there for the next.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, cast

from ..caching import LruCache
from ..core.compiler.compiler import Program, compile_format
from ..core.compiler.prompt_end import read_end, with_speech
from ..core.custom_tools import CustomTool
from ..core.grammar import Format
from ..core.tools import Tools
from ..core.vocabulary import Vocabulary, WholeVocabulary
from ..errors import InvalidSchema, InvalidTools, MissingTokens, Place, UnbraidError
from ..schema.keywords import Schema
from ..schema.regular import Verbatim, choice, sequence
from .builder import LazyLanguage, build, build_lazy
from .language import Json, OutputLanguage, Restricted, TextExcept, Token, Unenforced, one_token
from .output_prefix import NotContinued, Written, begun_triggers, from_trigger, read_output
from .printers import GrammarSyntax, Printed
from .printers.ebnf import to_ebnf
from .printers.gbnf import to_gbnf
from .printers.lark import to_lark
from .printers.regex import to_regex
from .printers.structural_tag import to_structural_tag
from .printers.token_sets import TokenSets, to_token_sets
from .printers.walk import Walk
from .request import Request, ToolChoice, read_request
from .schema_export import locate

if TYPE_CHECKING:
    from .masks import Masks

_PRINTERS: dict[GrammarSyntax, Callable[[OutputLanguage], Printed[Any]]] = {
    "lark": to_lark,
    "gbnf": to_gbnf,
    "ebnf": to_ebnf,
    "structural_tag": to_structural_tag,
    "regex": to_regex,
}
_REST_PRINTERS: dict[GrammarSyntax, Callable[[OutputLanguage, Sequence[Written]], Printed[Any]]] = {
    "gbnf": to_gbnf,
    "ebnf": to_ebnf,
    "structural_tag": to_structural_tag,
}


@dataclass(frozen=True, slots=True)
class LlamaCppGrammar:
    """A grammar for llama.cpp, which may be lazy."""

    printed: Printed[str]
    trigger: str | None = None
    """The text that wakes a lazy grammar,"""
    token: int | None = None
    """and its token, if it is one."""
    begun: tuple[str, ...] = ()
    """Beginnings of the trigger that the output ends with, so that the rest of the trigger wakes the grammar, too."""

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of a request to llama.cpp."""
        fields: dict[str, Any] = {"grammar": self.printed.grammar}
        if self.trigger is None:
            return fields
        by_text, by_token = {"type": 1, "value": self.trigger}, {"type": 0, "value": self.trigger, "token": self.token}
        triggers: list[dict[str, Any]] = [by_text if self.token is None else by_token]
        for beginning in self.begun:  # as a pattern for all of the text that comes, in which the group is the trigger
            rest = re.escape(self.trigger[len(beginning) :])
            triggers.append({"type": 3, "value": rf"({rest})[\s\S]*"})
        return {**fields, "grammar_lazy": True, "preserved_tokens": [self.trigger], "grammar_triggers": triggers}


AllPrinted = tuple[dict[GrammarSyntax, Printed[Any]], LlamaCppGrammar | None]
"""A constraint in the syntaxes that it was printed in."""


class Constraint:
    """What one response may be. Each method says it in the syntax of one kind of engine, and does its work once."""

    def __init__(
        self,
        language: OutputLanguage,
        vocabulary: Vocabulary | None = None,
        ends: Iterable[int] = (),
        lazy: Callable[[], LazyLanguage | None] | None = None,
        request: tuple[Format, str] | None = None,
        prefix: tuple[Written, ...] = (),
        prefix_ids: tuple[int, ...] = (),
    ) -> None:
        """request: the format and the request that it was made of: the key that it is kept under.
        prefix: the beginning of the output, if there is one already; and its ids, if these are known."""
        self._language = language
        self._vocabulary = vocabulary
        self._ends = frozenset(ends)
        self._lazy = lazy
        self._request = request
        self._prefix, self._prefix_ids = prefix, prefix_ids
        self._printed: dict[GrammarSyntax, Printed[Any]] = {}

    def __reduce__(self) -> tuple[Callable[..., Constraint], tuple[Any, ...]]:
        """Pickled with all grammars that were printed. Where it is read, it is kept for equal requests."""
        printed = self._printed, vars(self).get("llama_cpp")
        made_of = self._language, self._vocabulary, self._ends, self._lazy, self._request
        return _read, (*made_of, self._prefix, self._prefix_ids, printed)

    def printed_like(self, other: Constraint) -> AllPrinted:
        """This constraint in all syntaxes that another was printed in, as far as they can express it."""
        syntaxes = [syntax for syntax in other._printed if syntax in _REST_PRINTERS or not self._prefix]
        printed = {syntax: self.printed(syntax) for syntax in syntaxes}
        return printed, self.llama_cpp if "llama_cpp" in vars(other) else None

    def add(self, grammars: AllPrinted) -> None:
        """Keep grammars that another process has printed."""
        printed, llama_cpp = grammars
        self._printed |= printed
        if llama_cpp is not None:
            self.llama_cpp = llama_cpp

    @property
    def language(self) -> OutputLanguage:
        """What it allows, in no syntax."""
        return self._language

    def after(self, output: str | Iterable[int]) -> Constraint:
        """The constraint for the rest of an output that begins with `output`: for an engine that is to go on where
        another broke off, or that is given the beginning of a call. GBNF, EBNF and structural tags can say it, and so
        can masks, after token ids. Raises `NotContinued`, here or in printing, where there is no such rest."""
        new_ids = () if isinstance(output, str) else tuple(output)
        prefix = (*self._prefix, *read_output(new_ids or output, self._language, self._vocabulary))
        ids = (*self._prefix_ids, *new_ids) if new_ids and (self._prefix_ids or not self._prefix) else ()
        return Constraint(self._language, self._vocabulary, self._ends, self._lazy, None, prefix, ids)

    def to_lark(self) -> str:
        """For llguidance, from 1.7 on."""
        return cast(str, self.printed("lark").grammar)

    def to_gbnf(self) -> str:
        """For llama.cpp."""
        return cast(str, self.printed("gbnf").grammar)

    def to_llama_cpp(self) -> dict[str, Any]:
        """The same as the fields of a request to llama.cpp. Where the model may write freely until it calls a tool, the
        grammar is lazy: it sleeps until a call begins, and free text costs nothing."""
        return self.llama_cpp.fields

    def to_ebnf(self) -> str:
        """For xgrammar: what SGLang calls `ebnf`, and vLLM `grammar`."""
        return cast(str, self.printed("ebnf").grammar)

    def to_structural_tag(self) -> dict[str, Any]:
        """For xgrammar, as SGLang and vLLM take it."""
        return cast(dict[str, Any], self.printed("structural_tag").grammar)

    def to_regex(self) -> str:
        """For all that know regular expressions. Raises `NotRegular` where the language is not."""
        return cast(str, self.printed("regex").grammar)

    def to_token_sets(self) -> TokenSets:
        """For all that can forbid tokens, where nothing but the first few is constrained. Raises `NotTokens` where more
        is."""
        return to_token_sets(self._language)

    def printed(self, syntax: GrammarSyntax) -> Printed[Any]:
        """The language in a syntax, with what an engine must know of it."""
        if syntax not in _PRINTERS:
            raise UnbraidError(f"no syntax {syntax!r}: there are {', '.join(_PRINTERS)}")
        if syntax not in self._printed:
            self._printed[syntax] = self._print(syntax)
        return self._printed[syntax]

    def _print(self, syntax: GrammarSyntax) -> Printed[Any]:
        if not self._prefix:
            return _PRINTERS[syntax](self._language)
        if syntax not in _REST_PRINTERS:
            raise NotContinued(f"the rest of an output cannot be said in the syntax {syntax!r}")
        return _REST_PRINTERS[syntax](self._language, self._prefix)

    @cached_property
    def llama_cpp(self) -> LlamaCppGrammar:
        """The grammar for llama.cpp, with what its engine must know of it."""
        lazy = None if self._lazy is None else self._lazy()
        if lazy is None:
            return LlamaCppGrammar(self.printed("gbnf"))
        awake = from_trigger(self._prefix, lazy.trigger, lazy.token)
        if awake is not None:
            return LlamaCppGrammar(to_gbnf(lazy.language, awake))
        begun = () if lazy.token is not None else begun_triggers(self._prefix, lazy.trigger)
        printed = to_gbnf(lazy.language, (), *([beginning] for beginning in begun))
        return LlamaCppGrammar(printed, lazy.trigger, lazy.token, tuple(begun))

    def walk(self) -> Walk:
        """The language to follow by hand, character by character: what may come next at each. Raises `NotContinued`
        where it leaves too many alternatives open."""
        return Walk(self._language)

    def unenforced(self, syntax: GrammarSyntax) -> list[Unenforced]:
        """What `syntax` cannot express, so that it is not enforced."""
        return list(dict.fromkeys([*self._language.unenforced, *self.printed(syntax).unenforced]))

    def masks(self, ends: Iterable[int] | None = None) -> Masks:
        """The tokens that may come next, step by step, by llguidance. `ends` are those that end the output, if not
        those of the format."""
        if self._prefix and not self._prefix_ids:
            raise NotContinued("masks go on after token ids, and not after text")
        if self._vocabulary is None:
            raise UnbraidError("masks are for one vocabulary: make the constraint with tokenizer=…")
        try:
            from .masks import Masks, Uncompilable
        except ImportError as error:
            raise UnbraidError("masks need llguidance: pip install 'unbraid[constraints]'") from error
        vocabulary = cast(WholeVocabulary, self._vocabulary)
        try:
            masks = Masks(self._lark, vocabulary, self._ends if ends is None else ends, self._beyond)
        except Uncompilable as error:
            raise self._blamed() or error from error
        if masks.accepted(self._prefix_ids) < len(self._prefix_ids):
            raise NotContinued("the constraint does not allow what was written so far")
        for token in self._prefix_ids:
            masks.advance(token)
        return masks

    def _blamed(self) -> UnbraidError | None:
        """Which schema llguidance does not take, and where in it the trouble is."""
        from .masks import compiles

        def fails(schema: Schema) -> bool:
            return not compiles(to_lark(OutputLanguage(Json(schema, ""), {})).grammar)

        for node in self._language.nodes():
            if isinstance(node, Restricted) and not compiles(to_lark(OutputLanguage(node, {})).grammar):
                return InvalidTools(Place(text=node.unenforced.where), " is too complex to be enforced: simplify it")
            if isinstance(node, Json) and fails(node.schema):
                where = Place(text=locate(node.schema, fails, node.where))
                return InvalidSchema(where, " is too complex to be enforced: simplify it")
        return None

    @cached_property
    def _beyond(self) -> int:
        """The size of the model's vocabulary, where the language has tokens that its tokenizer has not; else 0."""
        tokens = [node for node in self._language.nodes() if isinstance(node, Token)]
        highest = max((last for token in tokens for _, last in token.ranges), default=-1)
        vocabulary = cast(WholeVocabulary, self._vocabulary)
        if highest < 0 or vocabulary.token_bytes(highest) is not None:
            return 0  # the tokenizer has it; to ask for its size may take as long as all else together
        return highest + 1 if highest >= vocabulary.size else 0

    @cached_property
    def _lark(self) -> str:
        return to_lark(self._language, all_escapes=True).grammar


def constraint(
    format: Format,
    *,
    tools: Iterable[Mapping[str, Any]] | Tools,
    tool_choice: ToolChoice | None,
    parallel_tool_calls: bool | None,
    reasoning: bool | None,
    response_format: Mapping[str, Any] | None,
    vocabulary: Vocabulary | None,
    prompt: str | Sequence[int] | None,
) -> Constraint:
    """See `unbraid.constraint`. What was asked for before is not made again."""
    if vocabulary is not None:
        format = format.for_version(vocabulary.version)
    program = compile_format(format, vocabulary)
    before = format.prompt if prompt is None else prompt
    end = read_end(program, before)
    opened, header = tuple(with_speech(program, end.strands)), end.header
    definitions: object = tools
    if not isinstance(tools, list):
        tools = tools if isinstance(tools, Tools) else Tools(tools)
        definitions = [(name, tools[name], tools.strict(name), _grammar(tools.custom(name))) for name in tools]
    try:
        key = json.dumps([definitions, tool_choice, parallel_tool_calls, reasoning, response_format, opened, header])
    except (TypeError, ValueError, RecursionError) as error:
        raise UnbraidError(f"tools, tool_choice and response_format must be what JSON can hold: {error}") from error
    if (kept := _constraints.get((program, key))) is not None:
        return kept
    # From here on a copy: what the caller changes later must not change what is kept.
    copied, tool_choice, parallel_tool_calls, reasoning, response_format, *_ = json.loads(key)
    checked = tools.copy() if isinstance(tools, Tools) else Tools(copied)
    request = read_request(format, checked, tool_choice, parallel_tool_calls, reasoning, response_format)
    language = build(program, request, opened, header)
    lazy = partial(_lazy, format, vocabulary, request)
    constraint = Constraint(language, vocabulary, program.ends, lazy, (format, key))
    return _constraints.setdefault((program, key), constraint)


def _lazy(format: Format, vocabulary: Vocabulary | None, request: Request) -> LazyLanguage | None:
    return build_lazy(compile_format(format, vocabulary), request)


def _read(
    language: OutputLanguage,
    vocabulary: Vocabulary | None,
    ends: Iterable[int],
    lazy: Callable[[], LazyLanguage | None] | None,
    request: tuple[Format, str] | None,
    prefix: tuple[Written, ...],
    prefix_ids: tuple[int, ...],
    printed: AllPrinted,
) -> Constraint:
    """A constraint that comes from another process. Where the same was asked for before, it is that one: requests that
    ask for the same share what is found out about it."""
    constraint = Constraint(language, vocabulary, ends, lazy, request, prefix, prefix_ids)
    if request is not None:
        constraint = _constraints.setdefault((compile_format(request[0], vocabulary), request[1]), constraint)
    constraint.add(printed)
    return constraint


def _grammar(custom: CustomTool | None) -> list[str] | None:
    """What the input of a custom tool must follow, as JSON."""
    return None if custom is None or custom.grammar is None else [custom.grammar.syntax, custom.grammar.definition]


_constraints: LruCache[tuple[Program, str], Constraint] = LruCache(256)
"""By format and request, the latter as JSON."""


def forced_prefix(steps: Iterable[Iterable[str]], vocabulary: Vocabulary) -> Constraint:
    """One of the tokens of each step, one step after the other; then any text. Whisper's output begins so."""
    nodes = []
    for texts in steps:
        ids = {text: vocabulary.token_id(text) for text in texts}
        missing = [text for text, token in ids.items() if token is None]
        if missing or not ids:
            raise MissingTokens(f"the tokenizer has no token {', '.join(missing) or '(none was named)'}")
        nodes.append(one_token({token for token in ids.values() if token is not None}, choice(*map(Verbatim, ids))))
    return Constraint(OutputLanguage(sequence(*nodes, TextExcept(())), {}), vocabulary)
