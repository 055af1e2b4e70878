// What llama.cpp makes of model outputs: reads cases as lines of JSON, writes them with its results. Made
// against llama.cpp b11434's libllama-common; tests/tools/chat_formats.py has the command.
//
// A case has "template" (a file) and either "output", or "message" (OpenAI's) whose rendering by the template
// is the output. It comes back with "output", "prompt" (its last bytes) and "parsed", or with "error".
#include "chat.h"

#include <fstream>
#include <iostream>
#include <iterator>

static std::string read_file(const std::string &path)
{
    std::ifstream f(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(f), {});
}

static common_chat_msg user_message()
{
    common_chat_msg m;
    m.role = "user";
    m.content = "Hey there!";
    return m;
}

static common_chat_templates_inputs inputs_of(common_json &c)
{
    common_chat_templates_inputs in;
    in.messages = {user_message()};
    if (c.contains("tools")) {
        in.tools = common_chat_tools_parse_oaicompat(c.at("tools"));
    }
    in.parallel_tool_calls = true;
    in.add_generation_prompt = true;
    in.enable_thinking = c.value("enable_thinking", true);
    in.reasoning_format =
        c.value("reasoning", true) ? COMMON_REASONING_FORMAT_DEEPSEEK : COMMON_REASONING_FORMAT_NONE;
    return in;
}

// The message as the template writes it behind the prompt.
static std::string rendered(common_chat_templates *t, common_json &c, const std::string &prompt)
{
    auto in = inputs_of(c);
    auto messages = common_json::array();
    messages.push_back(c.at("message"));
    in.messages.push_back(common_chat_msgs_parse_oaicompat(messages).at(0));
    in.add_generation_prompt = false;
    auto full = common_chat_templates_apply(t, in).prompt;
    if (full.compare(0, prompt.size(), prompt) != 0) {
        throw std::runtime_error("the rendering doesn't continue the prompt");
    }
    return full.substr(prompt.size());
}

static void run(common_json &c)
{
    auto t =
        common_chat_templates_init(nullptr, read_file(c.at("template").get<std::string>()), "<s>", "</s>");
    auto params = common_chat_templates_apply(t.get(), inputs_of(c));
    size_t from = params.prompt.size() - std::min<size_t>(params.prompt.size(), 64);
    while (from < params.prompt.size() && (params.prompt[from] & 0xC0) == 0x80) {
        from++;
    }
    c["prompt"] = params.prompt.substr(from);
    if (!c.contains("output")) {
        auto output = rendered(t.get(), c, params.prompt);
        for (const auto &end : c.at("ends")) {
            auto text = end.get<std::string>();
            auto at = output.rfind(text);
            if (at != std::string::npos && at + text.size() + 2 >= output.size()) {
                output.resize(at);
            }
        }
        c["output"] = output;
    }
    common_chat_parser_params how(params);
    how.parser.load(params.parser);
    auto m = common_chat_parse(c.at("output").get<std::string>(), false, how);
    m.role = "assistant";
    auto calls = common_json::array();
    for (const auto &call : m.tool_calls) {
        auto one = common_json::object();
        one["name"] = call.name;
        one["arguments"] = call.arguments;
        one["id"] = call.id;
        calls.push_back(one);
    }
    auto parsed = common_json::object();
    parsed["content"] = m.content;
    parsed["reasoning"] = m.reasoning_content;
    parsed["calls"] = calls;
    c["parsed"] = parsed;
}

int main()
{
    std::string line;
    while (std::getline(std::cin, line)) {
        auto c = common_json::parse(line);
        try {
            run(c);
        } catch (const std::exception &e) {
            c["error"] = std::string(e.what());
        }
        std::cout << c.dump() << "\n";
    }
}
