/* Conversations behind grappa-chat.h: thin, the work is in room chat. What is added here is what the
 * vocabulary knows: the file's templates, the texts of BOS and EOS, and the ids of tokens. */
#include "engine/engine.h"

#include "base/mem.h"
#include "base/utf8.h"
#include "chat/conversation.h"

#include <grappa-chat.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

struct grappa_chat {
    struct conversation *c;
    struct buf caps;
    struct grappa_grammar_params grammar;
    grappa_token *preserved, *triggers;
    size_t n_preserved, n_triggers;
};

struct grappa_chat_parser {
    struct chat_parser *p;
    struct grappa_delta *deltas;
    size_t size;
};

/* Both sides count alike. */
_Static_assert((int)GRAPPA_REASONING_DEEPSEEK_LEGACY == (int)CHAT_REASONING_DEEPSEEK_LEGACY,
               "reasoning formats");
_Static_assert((int)GRAPPA_GRAMMAR_LARK == (int)CHAT_GRAMMAR_LARK, "grammar types");
_Static_assert((int)GRAPPA_DELTA_ARGUMENTS == (int)CHAT_DELTA_ARGUMENTS, "delta types");

static struct str text_or_empty(const char *z)
{
    return z ? str_of(z) : (struct str){0};
}

/* ---- templates ---- */

static struct str file_template(const struct grappa_vocab *v, const char *key)
{
    struct str source = {0};
    gguf_string(v->g, key, &source, NULL);
    return source;
}

const char *grappa_vocab_chat_template(const struct grappa_vocab *v, const char *name, size_t *len)
{
    char key[128];
    struct str source = {0};
    snprintf(key, sizeof key, "tokenizer.chat_template%s%s", name ? "." : "", name ? name : "");
    *len = 0;
    if (!gguf_string(v->g, key, &source, NULL) || !source.p)
        return NULL;
    *len = source.n;
    return source.p;
}

bool grappa_has_chat_template(const struct grappa_vocab *v)
{
    return file_template(v, "tokenizer.chat_template").n > 0;
}

int grappa_chat_template_check(const char *name_or_source, struct grappa_err *err)
{
    struct err e = ERR_INIT;
    struct str source;
    struct chat_template *t = NULL;
    if (chat_template_choose(name_or_source, &source, &e) == 0)
        t = chat_template_new(source, (struct str){0}, (struct str){0}, &e);
    chat_template_free(t);
    return t ? 0 : engine_fail(err, &e);
}

static int find_templates(const struct grappa_vocab *v, const char *chosen, struct conversation_params *p,
                          struct err *err)
{
    if (chosen && *chosen)
        return chat_template_choose(chosen, &p->template, err);
    p->template = file_template(v, "tokenizer.chat_template");
    p->template_tool_use = file_template(v, "tokenizer.chat_template.tool_use");
    if (p->template.n == 0)
        p->template = p->template_tool_use.n ? p->template_tool_use : str_of(chat_template_builtin("chatml"));
    return 0;
}

static void use_vocab(const struct grappa_vocab *v, struct conversation_params *p)
{
    p->bos = vocab_text(v->v, vocab_bos(v->v));
    p->eos = vocab_text(v->v, vocab_eos(v->v));
    p->strip_bos = vocab_add_bos(v->v);
    p->strip_eos = vocab_add_eos(v->v);
}

/* ---- a conversation ---- */

/* The token that is exactly this text, if it is one that text doesn't become by itself. */
static token_id special_token(const struct vocab *v, const char *text)
{
    token_id t = vocab_find(v, str_of(text));
    bool special = t != TOKEN_NONE && (vocab_attr(v, t) & (VOCAB_ATTR_CONTROL | VOCAB_ATTR_USER_DEFINED));
    return special ? t : TOKEN_NONE;
}

static int64_t control_token(void *user, const char *text)
{
    const struct vocab *v = user;
    token_id t = vocab_find(v, str_of(text));
    return t != TOKEN_NONE && vocab_is_control(v, t) ? t : -1;
}

static grappa_token *special_tokens(const struct vocab *v, const char *const *texts, size_t n,
                                    size_t *n_found)
{
    grappa_token *out = xcalloc(n + 1, sizeof *out);
    *n_found = 0;
    for (size_t i = 0; i < n; i++) {
        token_id t = special_token(v, texts[i]);
        if (t != TOKEN_NONE)
            out[(*n_found)++] = t;
    }
    return out;
}

static void take_syntax(struct grappa_chat *c, const struct vocab *v)
{
    const struct chat_syntax *syntax = conversation_syntax(c->c);
    const struct chat_grammar *g = chat_syntax_grammar(syntax);
    const char *const *texts = NULL;
    size_t n = chat_syntax_preserved(syntax, &texts);
    c->preserved = special_tokens(v, texts, n, &c->n_preserved);
    if (!g)
        return;
    c->triggers = special_tokens(v, g->trigger_words, g->n_trigger_words, &c->n_triggers);
    c->grammar = (struct grappa_grammar_params){
        .type = (enum grappa_grammar_type)g->type,
        .source = g->source,
        .lazy = g->lazy,
        .trigger_words = g->trigger_words,
        .n_trigger_words = g->n_trigger_words,
        .trigger_patterns = g->trigger_patterns,
        .n_trigger_patterns = g->n_trigger_patterns,
        .trigger_tokens = c->triggers,
        .n_trigger_tokens = c->n_triggers,
    };
}

static int tool_choice(const struct grappa_chat_params *params, struct conversation_params *p,
                       struct err *err)
{
    static const char *const names[] = {
        [CHAT_TOOLS_AUTO] = "auto",
        [CHAT_TOOLS_NONE] = "none",
        [CHAT_TOOLS_REQUIRED] = "required",
    };
    p->tool_choice = CHAT_TOOLS_AUTO;
    if (!params->tool_choice)
        return 0;
    for (int i = 0; i < 3; i++) {
        if (strcmp(params->tool_choice, names[i]) == 0) {
            p->tool_choice = (enum chat_tool_choice)i;
            return 0;
        }
    }
    return err_set(err, ERR_USAGE,
                   "tool_choice: \"auto\", \"none\" or \"required\" expected, it is \"%.40s\"",
                   params->tool_choice);
}

struct grappa_chat *grappa_chat_new(const struct grappa_vocab *v, const struct grappa_chat_params *params,
                                    struct grappa_err *err)
{
    struct err e = ERR_INIT;
    struct conversation_params p = {
        .messages = text_or_empty(params->messages),
        .tools = text_or_empty(params->tools),
        .template_kwargs = text_or_empty(params->template_kwargs),
        .json_schema = text_or_empty(params->json_schema),
        .grammar = text_or_empty(params->grammar),
        .tool_name = text_or_empty(params->tool_name),
        .parallel_tool_calls = params->parallel_tool_calls,
        .add_generation_prompt = params->add_generation_prompt,
        .continue_final = params->continue_final >= 0,
        .reasoning = (enum chat_reasoning)params->reasoning_format,
        .enable_thinking = params->enable_thinking,
        .eager = true,
        .now = params->now,
        .control_token = control_token,
        .user = v->v,
    };
    struct conversation *made = NULL;
    use_vocab(v, &p);
    if (tool_choice(params, &p, &e) == 0 && find_templates(v, params->chat_template, &p, &e) == 0)
        made = conversation_new(&p, &e);
    if (!made) {
        engine_fail(err, &e);
        return NULL;
    }
    struct grappa_chat *c = xcalloc(1, sizeof *c);
    c->c = made;
    chat_caps_json(conversation_caps(made), &c->caps);
    take_syntax(c, v->v);
    return c;
}

void grappa_chat_free(struct grappa_chat *c)
{
    if (!c)
        return;
    conversation_free(c->c);
    buf_release(&c->caps);
    free(c->preserved);
    free(c->triggers);
    free(c);
}

const char *grappa_chat_prompt(const struct grappa_chat *c, size_t *len)
{
    struct str prompt = conversation_prompt(c->c);
    if (len)
        *len = prompt.n;
    return prompt.p;
}

const char *grappa_chat_format(const struct grappa_chat *c)
{
    return chat_syntax_format(conversation_syntax(c->c))->name;
}

const struct grappa_grammar_params *grappa_chat_grammar(const struct grappa_chat *c)
{
    return c->grammar.type == GRAPPA_GRAMMAR_NONE ? NULL : &c->grammar;
}

size_t grappa_chat_stops(const struct grappa_chat *c, const char *const **out)
{
    return chat_syntax_stops(conversation_syntax(c->c), out);
}

size_t grappa_chat_preserved(const struct grappa_chat *c, const grappa_token **out)
{
    *out = c->preserved;
    return c->n_preserved;
}

const char *grappa_chat_think_start(const struct grappa_chat *c)
{
    return chat_syntax_format(conversation_syntax(c->c))->think_start;
}

const char *grappa_chat_think_end(const struct grappa_chat *c)
{
    return chat_syntax_format(conversation_syntax(c->c))->think_end;
}

bool grappa_chat_thinking_open(const struct grappa_chat *c)
{
    return chat_syntax_thinking_open(conversation_syntax(c->c));
}

const char *grappa_chat_caps(const struct grappa_chat *c)
{
    return c->caps.p;
}

/* ---- what came back ---- */

/* For the ids of calls: they only have to differ. */
static uint64_t seed_now(const void *salt)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec +
           (uint64_t)(uintptr_t)salt * 0x9E3779B97F4A7C15u;
}

struct grappa_chat_parser *grappa_chat_parser_new(const struct grappa_chat *c, struct grappa_err *err)
{
    struct err e = ERR_INIT;
    struct grappa_chat_parser *p = xcalloc(1, sizeof *p);
    p->p = chat_parser_new(conversation_syntax(c->c), seed_now(p), &e);
    if (p->p)
        return p;
    engine_fail(err, &e);
    free(p);
    return NULL;
}

void grappa_chat_parser_free(struct grappa_chat_parser *p)
{
    if (!p)
        return;
    chat_parser_free(p->p);
    free(p->deltas);
    free(p);
}

size_t grappa_chat_parser_add(struct grappa_chat_parser *p, const char *text, size_t len, bool last,
                              const struct grappa_delta **out)
{
    const struct chat_delta *deltas;
    size_t n = chat_parser_add(p->p, text, len, last, &deltas);
    if (n > p->size) {
        p->size = n + 8;
        p->deltas = xrealloc(p->deltas, p->size * sizeof *p->deltas);
    }
    for (size_t i = 0; i < n; i++) {
        const struct chat_delta *d = &deltas[i];
        p->deltas[i] = (struct grappa_delta){
            (enum grappa_delta_type)d->type, d->index, d->id, d->name, d->text, d->n_text};
    }
    *out = p->deltas;
    return n;
}

const char *grappa_chat_parser_message(struct grappa_chat_parser *p, size_t *len)
{
    return chat_parser_message(p->p, len);
}

int grappa_chat_parser_n_calls(const struct grappa_chat_parser *p)
{
    return chat_parser_n_calls(p->p);
}

/* ---- the simple way ---- */

static void json_string(struct buf *out, const char *z)
{
    buf_putc(out, '"');
    size_t left = strlen(z);
    for (size_t n; left > 0; z += n, left -= n) {
        unsigned char c = (unsigned char)*z;
        n = utf8_len(z, left);
        if (n == 0) { /* JSON holds only characters: what is none becomes the one for that */
            buf_put_utf8(out, 0xFFFD);
            n = 1;
        } else if (c == '"' || c == '\\') {
            buf_printf(out, "\\%c", c);
        } else if (c < 0x20) {
            buf_printf(out, "\\u%04x", c);
        } else {
            buf_add(out, z, n);
        }
    }
    buf_putc(out, '"');
}

char *grappa_chat_apply(const struct grappa_vocab *v, const char *override,
                        const struct grappa_message *messages, size_t n, bool add_generation_prompt,
                        size_t *len, struct grappa_err *err)
{
    struct buf json = {0};
    buf_putc(&json, '[');
    for (size_t i = 0; i < n; i++) {
        buf_puts(&json, i ? ", {\"role\": " : "{\"role\": ");
        json_string(&json, messages[i].role);
        buf_puts(&json, ", \"content\": ");
        json_string(&json, messages[i].content);
        buf_putc(&json, '}');
    }
    buf_putc(&json, ']');
    struct grappa_chat_params params = {
        .chat_template = override,
        .messages = json.p,
        .add_generation_prompt = add_generation_prompt,
        .continue_final = -1,
    };
    struct grappa_chat *c = NULL;
    char *prompt = NULL;
    if (json.failed) {
        struct err e = ERR_INIT;
        err_set(&e, ERR_MEMORY, "the conversation is too long");
        engine_fail(err, &e);
    } else {
        c = grappa_chat_new(v, &params, err);
    }
    *len = 0;
    if (c) {
        const char *text = grappa_chat_prompt(c, len);
        prompt = malloc(*len + 1);
        if (prompt)
            memcpy(prompt, text, *len + 1);
    }
    grappa_chat_free(c);
    buf_release(&json);
    return prompt;
}
