/* The smallest program that writes: a model, a context, a sampler, and a step for each token.
 *
 *     generate model.gguf "The capital of France is" [seed]
 *
 * Without a seed it takes the most probable token each time. */
#include <grappa.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_PREDICT = 32 };

static int write_text(struct grappa_context *c, struct grappa_sampler *s, const struct grappa_vocab *v,
                      const grappa_token *prompt, size_t n_prompt, struct grappa_err *err)
{
    struct grappa_stream *text = grappa_stream_new(v, false);
    struct grappa_batch batch = {.n = n_prompt, .token = prompt};
    grappa_token t;
    size_t n;
    int rc = 0;
    for (int i = 0; i < N_PREDICT; i++) {
        rc = grappa_decode(c, &batch, err); /* the prompt, then one token at a time */
        if (rc < 0)
            break;
        t = grappa_sample(s, grappa_logits(c, -1));
        grappa_sampler_accept(s, t);
        if (grappa_vocab_is_eog(v, t))
            break;
        const char *piece = grappa_stream_add(text, t, &n); /* whole characters only */
        fwrite(piece, 1, n, stdout);
        batch = (struct grappa_batch){.n = 1, .token = &t};
    }
    const char *rest = grappa_stream_end(text, &n);
    fwrite(rest, 1, n, stdout);
    putchar('\n');
    grappa_stream_free(text);
    return rc;
}

int main(int argc, char **argv)
{
    struct grappa_err err = {0};
    int status = 1;
    if (argc < 3) {
        fprintf(stderr, "usage: %s model.gguf PROMPT [SEED]\n", argv[0]);
        return 2;
    }
    struct grappa_sampler_params p;
    grappa_sampler_defaults(&p);
    p.seed = argc > 3 ? (uint32_t)strtoul(argv[3], NULL, 10) : 0;
    p.temp = argc > 3 ? 0.8f : 0;
    size_t n = 0;
    grappa_token *prompt = NULL;
    struct grappa_context *c = NULL;
    struct grappa_sampler *s = NULL;
    struct grappa_model *m = grappa_model_load(argv[1], NULL, &err);
    if (!m)
        goto done;
    const struct grappa_vocab *v = grappa_model_vocab(m);
    c = grappa_context_new(m, NULL, &err);
    s = c ? grappa_sampler_new(v, &p, &err) : NULL;
    prompt = s ? grappa_tokenize_new(v, argv[2], strlen(argv[2]), true, true, &n, &err) : NULL;
    if (prompt && write_text(c, s, v, prompt, n, &err) == 0)
        status = 0;
done:
    if (status)
        fprintf(stderr, "%s\n", err.text);
    free(prompt);
    grappa_sampler_free(s);
    grappa_context_free(c);
    grappa_model_free(m);
    return status;
}
