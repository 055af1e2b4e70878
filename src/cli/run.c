/* grappa run: text after a prompt, or a chat. */
#include "cli/chat.h"
#include "cli/common.h"
#include "cli/session.h"

#include <grappa-chat.h>
#include <stdlib.h>
#include <string.h>

/* Chat or completion, when the options don't say: llama-cli always chats, llama-completion does if it can,
 * and we do if there is nothing to complete, or for a single turn. */
static bool wants_chat(const struct session *s)
{
    const struct options *o = s->o;
    if (o->conversation >= 0)
        return o->conversation;
    if (strcmp(o->called_as, "llama-cli") == 0)
        return true;
    if (strcmp(o->called_as, "llama-completion") == 0)
        return grappa_has_chat_template(s->vocab) || o->chat_template || o->chat_template_file;
    return o->single_turn || !has_prompt(o);
}

static const char *ending_text(enum ending e)
{
    static const char *const texts[] = {
        [END_MODEL] = "the model ended the text",     [END_STOP_TEXT] = "a reverse prompt ended the text",
        [END_LIMIT] = "-n tokens were written",       [END_CONTEXT] = "the context is full",
        [END_INTERRUPT] = "the text was interrupted", [END_OUTPUT] = "stdout takes no more",
    };
    return texts[e];
}

/* The tokens of the prompt; of an empty one BOS alone, if the model has it. */
static grappa_token *prompt_tokens(const struct session *s, const struct buf *text, size_t *n,
                                   struct grappa_err *err)
{
    grappa_token *tokens = grappa_tokenize_new(s->vocab, text->p, text->n, true, true, n, err);
    if (tokens && *n == 0 && grappa_vocab_add_bos(s->vocab)) {
        tokens[0] = grappa_vocab_bos(s->vocab);
        *n = 1;
    }
    return tokens;
}

static int complete(struct session *s, struct grappa_err *err)
{
    struct buf text = {0};
    grappa_token *tokens = NULL;
    size_t n = 0;
    enum ending ending = END_MODEL;
    int status = 1;
    if (read_prompt(s->o, false, &text, err))
        goto cleanup;
    tokens = prompt_tokens(s, &text, &n, err);
    if (!tokens)
        goto cleanup;
    if (s->o->verbose_prompt)
        show_tokens(s->vocab, tokens, n);
    if (session_write(s, tokens, n, s->o->display_prompt, NULL, NULL, &ending, err))
        goto cleanup;
    status = ending == END_INTERRUPT ? EXIT_INTERRUPTED : 0;
    if (ending != END_OUTPUT)
        out_text("\n", 1);
    if (ending == END_CONTEXT)
        log_warn("the context of %u positions is full", session_n_ctx(s));
    else
        log_info("%s", ending_text(ending));
cleanup:
    buf_release(&text);
    free(tokens);
    return err->exit_status ? cli_fail(err) : status;
}

/* What can be wrong with the options is said before a model is loaded. */
static int check_options(const struct options *o, struct grappa_err *err)
{
    struct grappa_err why = {0};
    if (o->chat_template && grappa_chat_template_check(o->chat_template, &why))
        return cli_error(err, 2, "--chat-template: %s", why.text);
    return 0;
}

int cmd_run(const struct options *o)
{
    struct session s = {0};
    struct grappa_err err = {0};
    int status;
    catch_interrupts();
    if (check_options(o, &err))
        return cli_fail(&err);
    if (session_open(&s, o, &err))
        status = interrupted ? EXIT_INTERRUPTED : cli_fail(&err);
    else
        status = wants_chat(&s) ? chat(&s, &err) : complete(&s, &err);
    if ((status == 0 || status == EXIT_INTERRUPTED) && s.engine && session_keep(&s, &err))
        status = cli_fail(&err);
    if (s.engine) {
        session_summary(&s);
        if (o->profile)
            fputs(grappa_engine_profile(s.engine), stderr);
    }
    session_close(&s);
    return status;
}
