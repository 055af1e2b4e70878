/* grappa: GGUF language models on OpenVINO.
 *
 * The vocabulary is that of llama.h: a model is a file compiled for a device, a context holds sequences of
 * tokens with their memory (KV blocks), a batch is one step of many sequences, a decode computes it.
 *
 * Ownership: what a …_load, …_open or …_new returns is freed by the matching …_free. Strings and arrays
 * handed out live as long as the object they came from, unless said otherwise. Options and batches are copied
 * or used only during the call.
 *
 * Errors: a function that can fail takes `struct grappa_err *` last (may be NULL), returns NULL or -1 and
 * fills it with one line.
 *
 * Threads: models and vocabularies are read-only and may be shared; a context, a sampler and a stream belong
 * to one thread at a time. */
#ifndef GRAPPA_H
#define GRAPPA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GRAPPA_VERSION "0.1.0"

typedef int32_t grappa_token;
#define GRAPPA_TOKEN_NONE (-1)

struct grappa_err {
    int exit_status; /* for a command line: 1 failure at run time, 2 wrong usage; 0: no error */
    int http_status; /* for a server */
    char text[2048]; /* one line, UTF-8 */
};

/* OpenVINO's version text, "2026.4.1-…". */
const char *grappa_openvino_version(void);

/* 0 errors, 1 warnings (default), 2 information, 3 everything; on stderr and in `file` (may be NULL). */
int grappa_log(int level, const char *file, struct grappa_err *err);

/* ---- devices ---- */
struct grappa_device {
    char name[64]; /* "CPU", "GPU.0", … */
    char full_name[128];
};
/* Fills up to `max`; returns how many there are, -1 on failure. */
int grappa_devices(struct grappa_device *out, int max, struct grappa_err *err);

/* ---- the file, without running it ---- */
struct grappa_file;

struct grappa_file *grappa_file_open(const char *path, struct grappa_err *err);
void grappa_file_free(struct grappa_file *f);

struct grappa_kv {
    const char *key;
    const char *type; /* "u32", "string", "array of f32", … */
    uint64_t n;       /* elements */
    char value[256];  /* for people; long values are cut */
};
size_t grappa_file_n_kv(const struct grappa_file *f);
void grappa_file_kv(const struct grappa_file *f, size_t i, struct grappa_kv *out);

struct grappa_tensor {
    const char *name;
    const char *type; /* GGML type, "Q4_K" */
    uint32_t n_dims;
    uint64_t ne[4];
    uint64_t size;    /* bytes in the file */
    uint32_t part;    /* of a split file */
    char runs_as[96]; /* what it becomes: "u4 g32 f16 scale, zero 8: exact", or "not used" */
};
size_t grappa_file_n_tensors(const struct grappa_file *f);
void grappa_file_tensor(const struct grappa_file *f, size_t i, struct grappa_tensor *out);

struct grappa_file_info {
    const char *path;
    char arch[64];  /* general.architecture */
    char name[128]; /* general.name */
    char type[64];  /* as llama-bench prints it: "llama 1B Q4_0" */
    uint64_t size;  /* bytes of the tensors */
    uint64_t n_params;
    uint32_t version; /* of the GGUF format */
    bool supported;   /* the architecture can run here */
};
void grappa_file_info(const struct grappa_file *f, struct grappa_file_info *out);
/* Architectures that run, separated by spaces. */
const char *grappa_architectures(void);

/* ---- vocabulary ---- */
struct grappa_vocab;

/* Only the vocabulary of a file (fast: no tensor is read). */
struct grappa_vocab *grappa_vocab_load(const char *path, struct grappa_err *err);
void grappa_vocab_free(struct grappa_vocab *v); /* not for a model's own */

int32_t grappa_vocab_n_tokens(const struct grappa_vocab *v);
grappa_token grappa_vocab_bos(const struct grappa_vocab *v);
grappa_token grappa_vocab_eos(const struct grappa_vocab *v);
bool grappa_vocab_add_bos(const struct grappa_vocab *v);
bool grappa_vocab_is_eog(const struct grappa_vocab *v, grappa_token t);
/* Tokens for filling in the middle, -1 where there is none: before, behind and in between; padding; the names
 * of a repository and of a file. */
grappa_token grappa_vocab_fim_pre(const struct grappa_vocab *v);
grappa_token grappa_vocab_fim_suf(const struct grappa_vocab *v);
grappa_token grappa_vocab_fim_mid(const struct grappa_vocab *v);
grappa_token grappa_vocab_fim_pad(const struct grappa_vocab *v);
grappa_token grappa_vocab_fim_rep(const struct grappa_vocab *v);
grappa_token grappa_vocab_fim_sep(const struct grappa_vocab *v);
/* Ids of the text into out[max]. Returns the count, which may exceed max (then call again), or -1. */
int64_t grappa_tokenize(const struct grappa_vocab *v, const char *text, size_t len, bool add_special,
                        bool parse_special, grappa_token *out, size_t max, struct grappa_err *err);
/* The same in a new array of n ids, freed with free(); also for no ids at all. NULL on failure. */
grappa_token *grappa_tokenize_new(const struct grappa_vocab *v, const char *text, size_t len,
                                  bool add_special, bool parse_special, size_t *n, struct grappa_err *err);
/* A prompt that asks for what stands between two texts; ids are those of llama-server's /infill. */
struct grappa_infill_file {
    const char *name; /* NULL: "tmp" */
    const char *text;
    size_t len;
};
struct grappa_infill {
    const grappa_token *prefix, *suffix, *prompt; /* before, behind, and what the answer begins with */
    size_t n_prefix, n_suffix, n_prompt;
    const struct grappa_infill_file *extra; /* of the same project */
    size_t n_extra;
    /* What fits: of prefix and suffix together n_batch tokens, of the extra files the last
     * n_ctx - n_batch - 2 n_predict. */
    int32_t n_batch, n_predict, n_ctx;
    bool suffix_first;
};
/* In a new array, as grappa_tokenize_new makes one; fails (http_status 501) if the vocabulary has no tokens
 * for it. */
grappa_token *grappa_infill_new(const struct grappa_vocab *v, const struct grappa_infill *in, size_t *n,
                                struct grappa_err *err);
/* Bytes of one token into out[max], not terminated; may cut characters (see grappa_stream). Returns the
 * length, which may exceed max. */
size_t grappa_token_piece(const struct grappa_vocab *v, grappa_token t, bool special, char *out, size_t max);

/* Turns tokens into text that never ends in the middle of a character. */
struct grappa_stream;
struct grappa_stream *grappa_stream_new(const struct grappa_vocab *v, bool special);
void grappa_stream_free(struct grappa_stream *s);
/* The text that this token completes; valid until the next call. */
const char *grappa_stream_add(struct grappa_stream *s, grappa_token t, size_t *len);
const char *grappa_stream_end(struct grappa_stream *s, size_t *len); /* what was held back */

/* ---- model ---- */
struct grappa_property {
    const char *key, *value;
};

enum grappa_type {
    GRAPPA_TYPE_DEFAULT,
    GRAPPA_TYPE_F32,
    GRAPPA_TYPE_F16,
    GRAPPA_TYPE_BF16,
    GRAPPA_TYPE_U8,
    GRAPPA_TYPE_U4
};
/* "f32", "f16", "bf16", "u8" (also "q8_0"), "u4" (also "q4_0"); -1 when unknown. */
int grappa_type_parse(const char *name, enum grappa_type *out);

struct grappa_model_params {    /* an all-zero one is the default */
    const char *device;         /* NULL: "CPU" */
    int32_t n_threads;          /* 0: OpenVINO's choice */
    enum grappa_type precision; /* of the inference; default: f32 on a CPU, elsewhere the device's choice */
    /* Of the KV cache; default: f16 on a CPU, elsewhere the device's choice. */
    enum grappa_type type_k, type_v;
    const struct grappa_property *properties; /* handed to OpenVINO as they are */
    size_t n_properties;
    const char *const *override_kv; /* "key=type:value", as llama.cpp's --override-kv */
    size_t n_override_kv;
    /* RoPE set from outside; 0: the file's. Scaling: NULL, "none", "linear", "yarn". */
    const char *rope_scaling;
    float rope_scale, rope_freq_base, rope_freq_scale;
    uint32_t yarn_orig_ctx;
    float yarn_ext_factor, yarn_attn_factor, yarn_beta_slow, yarn_beta_fast; /* ext: -1 or 0 = the file's */
    bool repack;  /* on a CPU too: weights repacked for OpenVINO's own products */
    bool profile; /* count time by node type, see grappa_profile */
    /* Rows of the output norm, [n_embd], in the place of logits: what embeddings are made of. */
    bool embeddings;
    /* The layers that guess further tokens ("nextn", multi-token prediction) too: an engine then guesses with
     * them (see grappa-engine.h). Refused when the file has none or its family's aren't known. */
    bool mtp;
    /* Called now and then with 0…1; returning false stops the load. */
    bool (*progress)(float done, void *user);
    void *progress_user;
};

struct grappa_model;

struct grappa_model *grappa_model_load(const char *path, const struct grappa_model_params *params,
                                       struct grappa_err *err);
void grappa_model_free(struct grappa_model *m);

const struct grappa_vocab *grappa_model_vocab(const struct grappa_model *m);
const struct grappa_file *grappa_model_file(const struct grappa_model *m);
uint32_t grappa_model_n_ctx_train(const struct grappa_model *m);
uint32_t grappa_model_n_embd(const struct grappa_model *m);
/* Labels of a reranker's head; 0: the model has none, or was not loaded for embeddings. */
uint32_t grappa_model_n_cls_out(const struct grappa_model *m);
/* Whether layers keep states that can't be cut back to any length, see grappa_seq_trim_point. */
bool grappa_model_is_recurrent(const struct grappa_model *m);
/* The IR document of the graph (without weights), for reading. */
const char *grappa_model_ir(const struct grappa_model *m, size_t *len);

struct grappa_model_stats {
    double load_s, build_s, compile_s; /* seconds; load is all of it */
};
void grappa_model_stats(const struct grappa_model *m, struct grappa_model_stats *out);

/* Builds the IR of a file without compiling it; freed with free(). */
char *grappa_file_ir(const char *path, const char *device, size_t *len, struct grappa_err *err);

/* ---- context ---- */
struct grappa_context_params { /* an all-zero one is the default */
    /* Positions of all sequences together; 0: the model's trained length, or what memory holds. */
    uint32_t n_ctx;
    uint32_t n_batch;   /* most tokens of one inference; longer batches are computed in several; 0: 512 */
    uint32_t n_seq_max; /* sequences, ids 0 … n_seq_max-1; 0: 1 */
    uint64_t kv_memory; /* bytes for keys and values, in the place of n_ctx; 0: by n_ctx */
    bool swa_full;      /* layers with a sliding window, too, keep all positions */
};

struct grappa_context;

struct grappa_context *grappa_context_new(struct grappa_model *m, const struct grappa_context_params *params,
                                          struct grappa_err *err);
void grappa_context_free(struct grappa_context *c);
uint32_t grappa_n_ctx(const struct grappa_context *c);
uint32_t grappa_n_batch(const struct grappa_context *c);

/* One step: n tokens, each of a sequence, at a position, with or without logits wanted. Tokens of one
 * sequence stand in the order of their positions, which continue that sequence's length. */
struct grappa_batch {
    size_t n;
    const grappa_token *token;
    const int32_t *pos;    /* NULL: continue each sequence */
    const int32_t *seq_id; /* NULL: all of sequence 0 */
    const int8_t *logits;  /* NULL: only the last token's */
};

/* Runs a batch. On failure no sequence has changed, but that layers with a sliding window may have lost what
 * a sequence read before a batch longer than n_batch: then it is cut back further, at worst to nothing. */
int grappa_decode(struct grappa_context *c, const struct grappa_batch *batch, struct grappa_err *err);
/* Logits [n_vocab] (of a model loaded for embeddings: rows [n_embd]) of the i-th token of the last batch that
 * wanted them, counted among those that did; negative i counts from the end. Valid until the next decode.
 * NULL when out of range. */
const float *grappa_logits(struct grappa_context *c, int32_t i);
int32_t grappa_n_logits(const struct grappa_context *c);

/* Tokens a sequence holds. */
int32_t grappa_seq_len(const struct grappa_context *c, int32_t seq);
/* Cuts a sequence back to its first n tokens; n = 0 forgets it. -1 when it can't be done: a model with
 * recurrent layers goes back only to where it has kept its states, one with sliding windows only to where
 * what they show is still there. */
int grappa_seq_trim(struct grappa_context *c, int32_t seq, int32_t n, struct grappa_err *err);
/* The largest length up to n that grappa_seq_trim can cut the sequence to, 0 at worst. With recurrent layers
 * these are the ends of the last few batches that gave the sequence more than one token, and its whole
 * length; with sliding windows the last 64 tokens before the last batch and before the last that gave it more
 * than one token, unless the context keeps all positions (always a short one, see swa_full). */
int32_t grappa_seq_trim_point(const struct grappa_context *c, int32_t seq, int32_t n);
/* dst becomes a copy of src (blocks are shared until written). */
int grappa_seq_copy(struct grappa_context *c, int32_t src, int32_t dst, struct grappa_err *err);

/* Writes a sequence to a file: its tokens, as the caller knows them, its KV blocks, its states. The file is
 * complete or not there, whatever happens: it is written beside and renamed. Returns the number of tokens;
 * bytes may be NULL. */
int64_t grappa_seq_save(struct grappa_context *c, int32_t seq, const grappa_token *tokens, const char *path,
                        uint64_t *bytes, struct grappa_err *err);
/* Reads one back, with its tokens into tokens[max]. A file of another model or other cache types, a broken
 * one, or one with more than max tokens is refused, and the sequence stays as it was. */
int64_t grappa_seq_restore(struct grappa_context *c, int32_t seq, const char *path, grappa_token *tokens,
                           size_t max, uint64_t *bytes, struct grappa_err *err);

/* Time by node type since the model was loaded with `profile`: text of several lines, valid until the next
 * call. */
const char *grappa_profile(struct grappa_context *c);

/* ---- constraints: which texts may come out ---- */
enum grappa_grammar_type {
    GRAPPA_GRAMMAR_NONE,
    GRAPPA_GRAMMAR_GBNF,        /* as llama.cpp's --grammar */
    GRAPPA_GRAMMAR_JSON_SCHEMA, /* "{}": any JSON object */
    GRAPPA_GRAMMAR_REGEX,
    GRAPPA_GRAMMAR_LARK /* llguidance's dialect */
};
struct grappa_grammar_params { /* all-zero: no constraint */
    enum grappa_grammar_type type;
    const char *source;
    /* A lazy one leaves the text alone until one of these appears, and holds from its beginning on. */
    bool lazy;
    const char *const *trigger_words;
    size_t n_trigger_words;
    const char *const *trigger_patterns; /* regular expressions over all that was written; from group 1 on */
    size_t n_trigger_patterns;
    const grappa_token *trigger_tokens;
    size_t n_trigger_tokens;
};
/* Whether it can be used; takes bounded time. http_status 400 and the reason if not. */
int grappa_grammar_check(const struct grappa_vocab *v, const struct grappa_grammar_params *g,
                         struct grappa_err *err);

/* ---- sampling: names and defaults of llama.cpp's common_params_sampling ---- */
struct grappa_logit_bias {
    grappa_token token;
    float bias;
};

struct grappa_sampler_params {
    uint32_t seed; /* 0xFFFFFFFF: drawn anew */
    float temp, dynatemp_range, dynatemp_exponent;
    int32_t top_k;
    float top_p, min_p, typical_p, top_n_sigma;
    float xtc_probability, xtc_threshold;
    int32_t min_keep;
    float repeat_penalty, frequency_penalty, presence_penalty;
    int32_t repeat_last_n;
    float dry_multiplier, dry_base;
    int32_t dry_allowed_length, dry_penalty_last_n;
    const char *const *dry_breakers;
    int n_dry_breakers;
    int32_t mirostat;
    float mirostat_tau, mirostat_eta;
    float adaptive_target, adaptive_decay; /* of sampler "adaptive_p" */
    bool ignore_eos;
    const struct grappa_logit_bias *bias;
    size_t n_bias;
    const char *samplers;     /* names separated by ';' */
    const char *sampling_seq; /* or letters, "edskypmxt"; NULL: use samplers */
    uint32_t n_ctx;           /* what a "last_n" of -1 means */
    struct grappa_grammar_params grammar;
    /* Thinking budget: tokens between think_start and think_end, then think_end is forced; -1: no bound. */
    int32_t think_budget;
    const char *think_start, *think_end; /* NULL: the budget means nothing */
    bool think_open;                     /* the prompt ends inside */
    bool think_control;                  /* also without a bound the thoughts are followed, to be ended */
};

void grappa_sampler_defaults(struct grappa_sampler_params *out);

struct grappa_sampler;
struct grappa_sampler *grappa_sampler_new(const struct grappa_vocab *v, const struct grappa_sampler_params *p,
                                          struct grappa_err *err);
void grappa_sampler_free(struct grappa_sampler *s);
void grappa_sampler_reset(struct grappa_sampler *s);
uint32_t grappa_sampler_seed(const struct grappa_sampler *s);
/* Works out which tokens the grammar allows next, so that grappa_sample need not: call it on another thread
 * while the step is computed. Without it grappa_sample does so itself. The sampler must not be used otherwise
 * meanwhile. */
void grappa_sampler_prepare(struct grappa_sampler *s);
/* Whether the grammar is at its end: only the end of the text may follow. */
bool grappa_sampler_finished(const struct grappa_sampler *s);
/* Thoughts that go on end with the next token, if the parameters had it that they are followed. */
void grappa_sampler_end_thoughts(struct grappa_sampler *s);
grappa_token grappa_sample(struct grappa_sampler *s, const float *logits);
void grappa_sampler_accept(struct grappa_sampler *s, grappa_token t);

/* ---- chat ---- */
struct grappa_message {
    const char *role, *content;
};
/* The prompt of a conversation by the model's template (or `override`, a template's source or built-in name;
 * NULL: the file's). Freed with free(). */
char *grappa_chat_apply(const struct grappa_vocab *v, const char *override,
                        const struct grappa_message *messages, size_t n, bool add_generation_prompt,
                        size_t *len, struct grappa_err *err);
/* The source of a template of the file: its own (NULL), or one by name ("tool_use"). Not terminated; NULL:
 * none. */
const char *grappa_vocab_chat_template(const struct grappa_vocab *v, const char *name, size_t *len);
/* Whether the file has a template of its own. */
bool grappa_has_chat_template(const struct grappa_vocab *v);

#ifdef __cplusplus
}
#endif

#endif
