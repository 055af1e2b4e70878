/* Text to tokens and back, as llama.cpp b11434 does it: same ids, same bytes.
 *
 * Kinds, by tokenizer.ggml.model: byte-level BPE ("gpt2", "gemma4", "hybriddna", "whitespace") with
 * pre-tokenizers from pretok.def, SentencePiece BPE ("llama") and Unigram ("t5"), WordPiece ("bert"), RWKV's
 * ("rwkv") and PLaMo 2's ("plamo2").
 * Sources: tokenizer.ggml.* keys of the GGUF specification; the pre-tokenizers' regular expressions are those
 * of the models' own tokenizer.json files.
 *
 * A struct vocab is read-only after vocab_new and may be shared between threads. */
#ifndef VOCAB_VOCAB_H
#define VOCAB_VOCAB_H

#include "base/buf.h"
#include "base/err.h"
#include "gguf/gguf.h"

typedef int32_t token_id;
#define TOKEN_NONE (-1)

enum vocab_attr { /* bits, values of tokenizer.ggml.token_type mapped as llama.cpp's llama_token_attr */
                  VOCAB_ATTR_UNKNOWN = 1,
                  VOCAB_ATTR_UNUSED = 2,
                  VOCAB_ATTR_NORMAL = 4,
                  VOCAB_ATTR_CONTROL = 8,
                  VOCAB_ATTR_USER_DEFINED = 16,
                  VOCAB_ATTR_BYTE = 32,
                  VOCAB_ATTR_NORMALIZED = 64,
                  VOCAB_ATTR_LSTRIP = 128,
                  VOCAB_ATTR_RSTRIP = 256,
                  VOCAB_ATTR_SINGLE_WORD = 512,
};

struct vocab;

/* `g` must outlive the vocabulary. Errors name the key. A file without a vocabulary ("no_vocab" or no
 * tokenizer.ggml.model) gives one with n tokens of no text that refuses to tokenise. */
struct vocab *vocab_new(const struct gguf *g, struct err *err);
void vocab_free(struct vocab *v);

int32_t vocab_n_tokens(const struct vocab *v);
const char *vocab_model(const struct vocab *v);           /* "gpt2", "llama", "none", … */
struct str vocab_text(const struct vocab *v, token_id t); /* as in the file; empty when out of range */
float vocab_score(const struct vocab *v, token_id t);
uint32_t vocab_attr(const struct vocab *v, token_id t);
bool vocab_is_eog(const struct vocab *v, token_id t);
bool vocab_is_control(const struct vocab *v, token_id t);
/* TOKEN_NONE when the vocabulary has none. */
token_id vocab_bos(const struct vocab *v);
token_id vocab_eos(const struct vocab *v);
token_id vocab_eot(const struct vocab *v);
token_id vocab_nl(const struct vocab *v);
token_id vocab_pad(const struct vocab *v);
/* Fill-in-the-middle: before, behind and in between; padding; a repository's name; a file's name. */
token_id vocab_fim_pre(const struct vocab *v);
token_id vocab_fim_suf(const struct vocab *v);
token_id vocab_fim_mid(const struct vocab *v);
token_id vocab_fim_pad(const struct vocab *v);
token_id vocab_fim_rep(const struct vocab *v);
token_id vocab_fim_sep(const struct vocab *v);
bool vocab_add_bos(const struct vocab *v);
bool vocab_add_eos(const struct vocab *v);
/* Exact text of a token to its id, TOKEN_NONE if there is none. */
token_id vocab_find(const struct vocab *v, struct str text);

/* A growing list of ids, freed by the caller with free(ids.p). */
struct token_list {
    token_id *p;
    size_t n, size;
};

/* Appends the ids of `text` (any bytes; invalid UTF-8 is handled as llama.cpp does). add_special puts
 * BOS/EOS where the file wants them; parse_special recognises control tokens in the text. Time is linear in
 * the text's length up to a logarithm. -1 on failure. */
int vocab_tokenize(const struct vocab *v, struct str text, bool add_special, bool parse_special,
                   struct token_list *out, struct err *err);

/* A prompt that asks for what stands between two texts. */
struct vocab_infill_file { /* something else of the same project */
    struct str name, text;
};
struct vocab_infill {
    const token_id *prefix, *suffix, *prompt; /* texts before and behind, and what the answer begins with */
    size_t n_prefix, n_suffix, n_prompt;
    const struct vocab_infill_file *extra;
    size_t n_extra;
    /* What fits: of prefix and suffix together n_batch tokens (their ends at the gap are kept), of the extra
     * files the last n_ctx - n_batch - 2 n_predict. */
    int32_t n_batch, n_predict, n_ctx;
    bool suffix_first;
};

/* Appends the prompt's ids, those of llama-server's /infill: the pattern of Qwen2.5-Coder (arXiv 2409.12186),
 * as much of it as there are tokens for. Fails with ERR_UNSUPPORTED if the vocabulary lacks one of the three
 * that it takes, and says which. */
int vocab_infill(const struct vocab *v, const struct vocab_infill *in, struct token_list *out,
                 struct err *err);

/* Appends the bytes of one token, as llama_token_to_piece: `special` false leaves control tokens out;
 * `lstrip` leading spaces are dropped. */
void vocab_piece(const struct vocab *v, token_id t, int lstrip, bool special, struct buf *out);

/* Appends the text of a list, as llama_detokenize. */
void vocab_detokenize(const struct vocab *v, const token_id *ids, size_t n, bool remove_special,
                      bool unparse_special, struct buf *out);

/* Streaming: bytes of tokens go in, whole characters come out. An all-zero value is ready. */
struct utf8_stream {
    unsigned char held[4];
    int n;
};
/* Appends to out all of the held bytes and `bytes` except a beginning of a character at the end, which is
 * held back. Bytes that can't belong to any character are passed on as they are. */
void utf8_stream_add(struct utf8_stream *s, struct str bytes, struct buf *out);
void utf8_stream_end(struct utf8_stream *s, struct buf *out); /* what is still held, as it is */

#endif
