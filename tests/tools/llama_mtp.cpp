// Expected values for the tests of MTP layers: what llama.cpp's context of that type makes of a text.
//
//     c++ -std=c++17 -Illama.cpp/include -Illama.cpp/ggml/include -Illama.cpp/src llama_mtp.cpp -lllama
//     -lggml-base -o llama_mtp
//     ./llama_mtp MODEL.gguf OUT.f32 N ROW,ROW,… DEEP
//
// The text is N ids, (7 i + 3) mod 320. The trunk decodes it in one call; the MTP context is given each token
// with the trunk's hidden row of the token before it, zeros for the first. OUT receives its logits of some
// rows and of DEEP more, for which it goes on by itself: from the most probable token and its own hidden row.
//
// Not a part of the build: it needs llama.cpp's headers and libllama.
#include "llama-ext.h"
#include "llama.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

static void check(bool fine, const char *what)
{
    if (fine)
        return;
    fprintf(stderr, "%s failed\n", what);
    exit(1);
}

static llama_context *context(llama_model *m, llama_context_type type, llama_context *trunk, bool masked)
{
    llama_context_params p = llama_context_default_params();
    p.n_ctx = 256;
    p.n_batch = p.n_ubatch = 256;
    p.ctx_type = type;
    p.ctx_other = trunk;
    p.type_k = p.type_v = GGML_TYPE_F32;
    p.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    llama_context *c = llama_init_from_model(m, p);
    check(c, "llama_init_from_model");
    llama_set_embeddings_nextn(c, true, masked);
    return c;
}

static void decode(llama_context *c, const std::vector<llama_token> &ids, int at, const float *rows,
                   size_t width)
{
    llama_batch_ext *b = llama_batch_ext_init(c);
    for (size_t i = 0; i < ids.size(); i++) {
        llama_pos pos[4] = {llama_pos(at + int(i)), 0, 0, 0};
        int32_t k = llama_batch_ext_add_token(b, 0, ids[i]);
        check(k >= 0 && llama_batch_ext_set_pos(b, k, pos), "llama_batch_ext_add_token");
        check(!rows || llama_batch_ext_set_embd_token(b, k, {rows + i * width, 1, width}),
              "llama_batch_ext_set_embd_token");
        check(llama_batch_ext_set_output_logits(b, k, true), "llama_batch_ext_set_output_logits");
    }
    check(llama_process(c, LLAMA_PROCESS_TYPE_DECODE, b) == 0, "llama_process");
    llama_batch_ext_free(b);
}

int main(int argc, char **argv)
{
    if (argc != 6) {
        fprintf(stderr, "usage: llama_mtp MODEL.gguf OUT.f32 N ROW,ROW,... DEEP\n");
        return 2;
    }
    llama_backend_init();
    llama_model_params mp = llama_model_default_params();
    ggml_backend_dev_t none[] = {nullptr};
    mp.devices = none;
    mp.load_mtp = true;
    llama_model *m = llama_model_load_from_file(argv[1], mp);
    check(m, "llama_model_load_from_file");
    llama_context *trunk = context(m, LLAMA_CONTEXT_TYPE_DEFAULT, nullptr, false);
    llama_context *mtp = context(m, LLAMA_CONTEXT_TYPE_MTP, trunk, true);
    size_t width = size_t(llama_model_n_embd(m)),
           n_vocab = size_t(llama_vocab_n_tokens(llama_model_get_vocab(m)));

    int n = atoi(argv[3]);
    std::vector<llama_token> ids;
    for (int i = 0; i < n; i++)
        ids.push_back((7 * i + 3) % 320);
    decode(trunk, ids, 0, nullptr, width);
    std::vector<float> rows(size_t(n) * width, 0.0f);
    const float *hidden = llama_get_embeddings_nextn(trunk);
    std::copy(hidden, hidden + size_t(n - 1) * width, rows.begin() + ptrdiff_t(width));
    decode(mtp, ids, 0, rows.data(), width);

    FILE *f = fopen(argv[2], "wb");
    check(f, "fopen");
    for (char *p = argv[4]; *p; p += *p == ',')
        fwrite(llama_get_logits_ith(mtp, int(strtol(p, &p, 10))), sizeof(float), n_vocab, f);
    int last = n - 1;
    for (int i = 0; i < atoi(argv[5]); i++, last = 0) {
        const float *logits = llama_get_logits_ith(mtp, last),
                    *own = llama_get_embeddings_nextn_ith(mtp, last);
        llama_token best = llama_token(std::max_element(logits, logits + n_vocab) - logits);
        std::vector<float> row(own, own + width);
        decode(mtp, {best}, n + i, row.data(), width);
        fwrite(llama_get_logits_ith(mtp, 0), sizeof(float), n_vocab, f);
    }
    check(fclose(f) == 0, "fclose");
}
