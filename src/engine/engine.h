/* What the files of the engine share: the objects behind grappa.h. */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

#include "arch/arch.h"
#include "base/err.h"
#include "base/mem.h"
#include "engine/image.h"
#include "engine/kv.h"
#include "engine/states.h"
#include "gguf/gguf.h"
#include "ov/ov.h"
#include "sampler/grammar.h"
#include "vocab/vocab.h"

#include <grappa.h>

struct grappa_file {
    struct gguf *g;
    struct arch_model *arch; /* which tensors are used and how; NULL when the file can't run */
    bool own_arch;           /* built for this file alone, not a model's */
    struct arena names;
    const char **tensor_names, **keys; /* terminated copies, by index */
};

struct grappa_vocab {
    struct vocab *v;
    const struct gguf *g;
    struct gguf *own_g; /* when loaded without a model */
    int32_t n_rows;     /* of a model's logits: the number of tokens when the file has no vocabulary */
    _Atomic(struct grammar_vocab *) grammar; /* made by the first that needs it, see engine_grammar_vocab */
};

struct engine_cache { /* a cache input of the compiled graph */
    char name[32];
    struct ov_port port;
    size_t block_bytes;
};

struct rank_head {            /* of a reranker, see rank.c */
    float *rows;              /* [n_labels, width], owned */
    uint32_t n_labels, width; /* 0: there is none */
};

struct grappa_model {
    struct grappa_file file;
    struct grappa_vocab vocab;
    struct arch_model *arch;
    struct buf xml;
    struct image image;
    struct ov_program *program;
    struct engine_cache *caches; /* key and value of each layer, in turn */
    size_t n_caches;
    struct rank_head rank; /* of a model loaded for embeddings */
    int32_t block_size;    /* tokens in a KV block */
    bool profile;
    int unpacked_steps;          /* inferences left in which the plugin may still pack weights */
    struct grappa_context *user; /* a compiled graph has one request: one context at a time */
    /* The layer that guesses, compiled by itself, if that was asked for: a model whose file and vocabulary
     * are this one's, for a context of struct draft. Owned. */
    struct grappa_model *nextn;
    struct grappa_model_stats stats;
};

/* Copies an internal error to the caller's; returns -1. */
int engine_fail(struct grappa_err *out, const struct err *err);

/* The head of the file, if its family has one: all zero otherwise. Release it also after a failure. */
int rank_init(struct rank_head *h, const struct gguf *g, const struct arch_model *a, struct err *err);
void rank_release(struct rank_head *h);
/* What it makes of a row [width] of the output norm: softmax(rows . row), [n_labels]. Source: llama.cpp's
 * build_pooling for LLAMA_POOLING_TYPE_RANK. */
void rank_scores(const struct rank_head *h, const float *row, float *scores);

/* The process's one OpenVINO core. */
struct ov_runtime *engine_runtime(struct err *err);

double engine_seconds(void);            /* monotonic clock */
uint64_t engine_memory_available(void); /* bytes; 0 when unknown */

/* What constraints need to know of the vocabulary; made once, on any thread. Freed with it. */
struct grammar_vocab *engine_grammar_vocab(const struct grappa_vocab *v, struct err *err);

/* Takes over `g`; `arch` (may be NULL) stays the caller's. */
void engine_file_init(struct grappa_file *f, struct gguf *g, struct arch_model *arch);
void engine_file_release(struct grappa_file *f);

#endif
