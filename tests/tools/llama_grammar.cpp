/* Expected values for the grammar tests: llama.cpp's (b11434) verdict on texts.
 *
 *     c++ -std=c++17 -Illama.cpp/include -Illama.cpp/ggml/include -Illama.cpp/src llama_grammar.cpp -lllama
 * -o llama_grammar
 *     ./llama_grammar < tests/golden/grammar/cases.txt > tests/golden/grammar/expected.txt 2> /dev/null
 *
 * A line for each grammar, "@ refused" or "@ fine", and one for each of its texts: how many of its characters
 * the grammar takes, and whether the text may end there ("3 yes").
 *
 * Not a part of the build: it needs llama.cpp's headers and libllama. */
#include "llama-grammar.h"

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

static std::string unescape(const std::string &s)
{
    std::string out;
    for (size_t i = 0; i < s.size(); i++) {
        if (s[i] != '\\' || i + 1 == s.size()) {
            out += s[i];
            continue;
        }
        char c = s[++i];
        if (c == 'x') {
            out += (char)std::stoi(s.substr(i + 1, 2), nullptr, 16);
            i += 2;
        } else {
            out += c == 'n' ? '\n' : c == 'r' ? '\r' : c == 't' ? '\t' : c;
        }
    }
    return out;
}

static void text(const std::string &source, const std::string &line)
{
    llama_grammar *g =
        llama_grammar_init_impl(nullptr, source.c_str(), "root", false, nullptr, 0, nullptr, 0);
    std::string s = unescape(line);
    size_t taken = 0;
    bool ends = false;
    for (size_t i = 0; i < s.size();) {
        size_t n = 1;
        while (i + n < s.size() && ((unsigned char)s[i + n] & 0xC0) == 0x80)
            n++;
        try {
            llama_grammar_accept_str(*g, s.substr(i, n));
        } catch (const std::exception &) {
            break;
        }
        i += n;
        taken++;
        if (i < s.size())
            continue;
    }
    for (const auto &stack : llama_grammar_get_stacks(g))
        ends = ends || stack.empty();
    printf("%zu %s\n", taken, ends ? "yes" : "no");
    llama_grammar_free_impl(g);
}

int main()
{
    std::string line, source;
    enum { OUTSIDE, GRAMMAR, TEXTS } at = OUTSIDE;
    bool refused = false;
    while (std::getline(std::cin, line)) {
        if (line.compare(0, 2, "@ ") == 0) {
            at = GRAMMAR;
            source.clear();
        } else if (at == GRAMMAR && line == "--") {
            at = TEXTS;
            llama_grammar *g =
                llama_grammar_init_impl(nullptr, source.c_str(), "root", false, nullptr, 0, nullptr, 0);
            refused = g == nullptr;
            printf("@ %s\n", refused ? "refused" : "fine");
            if (g)
                llama_grammar_free_impl(g);
        } else if (at == GRAMMAR) {
            bool cr = line.size() > 1 && line.compare(line.size() - 2, 2, "\\r") == 0;
            source += (cr ? line.substr(0, line.size() - 2) + "\r" : line) + "\n";
        } else if (at == TEXTS) {
            if (refused)
                puts("-");
            else
                text(source, line);
        }
    }
}
