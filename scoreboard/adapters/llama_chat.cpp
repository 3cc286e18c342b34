// llama.cpp's chat session as a C interface: what its server does between sampled text and the deltas of a client.
// Compiled against the headers of the source that the xllamacpp wheel was built from, and bound to the wheel itself.

#include "chat.h"

#include <memory>
#include <string>

struct Chat {
    common_chat_templates_ptr            templates;
    std::unique_ptr<common_chat_session> session;
    common_chat_msg                      before;
    std::string                          out;
};

static std::string error_of(const std::exception & failure) {
    auto fields     = common_json::object();
    fields["error"] = std::string(failure.what());
    return fields.dump();
}

static common_json fields_of(const common_chat_msg_diff & diff) {
    auto fields         = common_json::object();
    fields["content"]   = diff.content_delta;
    fields["reasoning"] = diff.reasoning_content_delta;
    if (diff.tool_call_index != std::string::npos) {
        fields["index"]     = (int64_t) diff.tool_call_index;
        fields["name"]      = diff.tool_call_delta.name;
        fields["arguments"] = diff.tool_call_delta.arguments;
    }
    return fields;
}

// As `oaicompat_chat_params_parse` of the server fills it, with the server's defaults.
static common_chat_templates_inputs inputs_of(const Chat & chat, common_json & request) {
    common_chat_templates_inputs inputs;
    inputs.messages            = common_chat_msgs_parse_oaicompat(request.at("messages"));
    inputs.tools               = common_chat_tools_parse_oaicompat(request.at("tools"));
    inputs.parallel_tool_calls = common_chat_templates_get_caps(chat.templates.get())["supports_parallel_tool_calls"];
    inputs.reasoning_format    = COMMON_REASONING_FORMAT_DEEPSEEK;
    inputs.enable_thinking     = request.at("thinking").get<bool>();
    for (const auto & item : request.at("options").items()) {
        inputs.chat_template_kwargs[item.key()] = item.value().dump();
    }
    return inputs;
}

extern "C" {

Chat * chat_open(const char * source, const char * body) {
    auto chat = std::make_unique<Chat>();
    try {
        auto request    = common_json::parse(body);
        chat->templates = common_chat_templates_init(nullptr, source, "<s>", "</s>");
        chat->session   = std::make_unique<common_chat_session>(chat->templates.get(), nullptr, inputs_of(*chat, request));
        chat->before    = chat->session->msg();
    } catch (const std::exception & failure) {
        chat->out = error_of(failure);
    }
    return chat.release();
}

// Why a chat could not be opened, or the prompt that it has.
const char * chat_said(Chat * chat) {
    return chat->session ? chat->session->prompt().c_str() : chat->out.c_str();
}

// The deltas of a piece of the reply, as JSON; an object with `error` where the parser raises.
const char * chat_feed(Chat * chat, const char * text, bool last) {
    try {
        common_chat_input piece{ std::string(text) };
        auto              after  = last ? chat->session->finish(piece) : chat->session->feed(piece);
        auto              deltas = common_json::array();
        if (!after.empty()) {
            for (const auto & diff : common_chat_msg_diff::compute_diffs(chat->before, after)) {
                deltas.push_back(fields_of(diff));
            }
            chat->before = after;
        }
        chat->out = deltas.dump();
    } catch (const std::exception & failure) {
        chat->out = error_of(failure);
    }
    return chat->out.c_str();
}

void chat_close(Chat * chat) {
    delete chat;
}
}
