/* Several prompts at once: an engine runs them together, each one's text is collected as it comes.
 *
 *     requests model.gguf "The capital of France is" "Once upon a time" … */
#include <grappa-engine.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_REQUESTS = 64, MAX_PROMPT = 4096, MAX_TEXT = 65536 };

struct answer {
    char text[MAX_TEXT];
    size_t n;
};

/* Runs on the engine's thread: keep it short. */
static bool on_event(void *user, const struct grappa_event *ev)
{
    struct answer *a = user;
    size_t n = ev->n_text < MAX_TEXT - 1 - a->n ? ev->n_text : MAX_TEXT - 1 - a->n;
    if (n)
        memcpy(a->text + a->n, ev->text, n);
    a->n += n;
    if (ev->type == GRAPPA_EVENT_DONE && ev->err)
        fprintf(stderr, "%s\n", ev->err->text);
    return true; /* false would end the request */
}

static struct grappa_request *start(struct grappa_engine *e, const char *prompt, struct answer *a,
                                    struct grappa_err *err)
{
    grappa_token tokens[MAX_PROMPT];
    const struct grappa_vocab *v = grappa_model_vocab(grappa_engine_model(e));
    int64_t n = grappa_tokenize(v, prompt, strlen(prompt), true, true, tokens, MAX_PROMPT, err);
    if (n < 0 || n > MAX_PROMPT)
        return NULL;
    struct grappa_request_params p;
    grappa_request_defaults(&p);
    p.prompt = tokens;
    p.n_prompt = (size_t)n;
    p.n_predict = 32;
    p.sampler.temp = 0;
    p.on_event = on_event;
    p.user = a;
    return grappa_request_new(e, &p, err);
}

int main(int argc, char **argv)
{
    struct grappa_err err = {0};
    int n = argc - 2, status = 1;
    if (n < 1 || n > MAX_REQUESTS) {
        fprintf(stderr, "usage: %s model.gguf PROMPT…\n", argv[0]);
        return 2;
    }
    struct grappa_request *requests[MAX_REQUESTS] = {0};
    struct answer *answers = calloc((size_t)n, sizeof *answers);
    struct grappa_model *m = answers ? grappa_model_load(argv[1], NULL, &err) : NULL;
    struct grappa_engine *e = m ? grappa_engine_new(m, NULL, &err) : NULL;
    if (!e)
        goto done;
    for (int i = 0; i < n; i++) {
        requests[i] = start(e, argv[i + 2], &answers[i], &err);
        if (!requests[i])
            goto done;
    }
    for (int i = 0; i < n; i++) {
        grappa_request_wait(requests[i]);
        printf("%s%s\n", argv[i + 2], answers[i].text);
    }
    status = 0;
done:
    if (status)
        fprintf(stderr, "%s\n", err.text);
    for (int i = 0; i < n; i++)
        grappa_request_free(requests[i]);
    grappa_engine_free(e);
    grappa_model_free(m);
    free(answers);
    return status;
}
