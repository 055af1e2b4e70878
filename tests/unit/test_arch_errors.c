/* Files that are sound GGUF but no model: a tiny one of which one thing was changed. Each is refused in one
 * line that names the key or the tensor. */
#include "arch/arch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TINY SOURCE_DIR "/.models/tiny/"

/* A file in memory that may be changed. */
struct bytes {
    char *p;
    size_t n;
};

static struct bytes read_model(const char *name)
{
    char path[512];
    snprintf(path, sizeof path, TINY "%s.gguf", name);
    FILE *f = fopen(path, "rb");
    if (!f)
        fail_msg("%s is not there: python tests/tools/tiny_models.py", path);
    struct bytes b = {0};
    fseek(f, 0, SEEK_END);
    b.n = (size_t)ftell(f);
    rewind(f);
    b.p = malloc(b.n);
    assert_int_equal(fread(b.p, 1, b.n, f), b.n);
    fclose(f);
    return b;
}

/* A name with its length before it, as keys and tensors have it; there must be one. */
static char *find_name(struct bytes b, const char *name)
{
    char record[128];
    uint64_t len = strlen(name);
    memcpy(record, &len, sizeof len);
    memcpy(record + sizeof len, name, len);
    char *at = memmem(b.p, b.n, record, sizeof len + len);
    if (!at)
        fail_msg("%s is not in the file", name);
    return at + sizeof len;
}

/* What can be done to a file. A tensor's entry: name, u32 number of dimensions, u64 each, u32 type. */
static void rename_it(struct bytes b, const char *name)
{
    *find_name(b, name) = 'X';
}

static char *dims_of(struct bytes b, const char *tensor)
{
    return find_name(b, tensor) + strlen(tensor) + sizeof(uint32_t);
}

static void turn(struct bytes b, const char *tensor)
{
    uint64_t ne[2], turned[2];
    memcpy(ne, dims_of(b, tensor), sizeof ne);
    turned[0] = ne[1];
    turned[1] = ne[0];
    memcpy(dims_of(b, tensor), turned, sizeof turned);
}

static void set_type(struct bytes b, const char *tensor, uint32_t type)
{
    uint32_t n_dims;
    memcpy(&n_dims, find_name(b, tensor) + strlen(tensor), sizeof n_dims);
    memcpy(dims_of(b, tensor) + n_dims * sizeof(uint64_t), &type, sizeof type);
}

static void free_built(struct arch_model *m, struct gguf *g, struct bytes b)
{
    arch_free(m);
    gguf_close(g);
    free(b.p);
}

/* Builds from the bytes, which are freed; expects success (part NULL) or a line with this part. */
static void expect(struct bytes b, const char *override, const char *part)
{
    struct err err = ERR_INIT;
    struct gguf *g = gguf_open_memory(b.p, b.n, &err);
    if (!g || (override && gguf_override(g, override, &err) < 0))
        fail_msg("%s", err.text);
    struct arch_model *m = arch_build(g, &(struct arch_options){0}, &err);
    if (!part && !m)
        fail_msg("%s: %s", override ? override : "?", err.text);
    if (part && m)
        fail_msg("was built: expected \"%s\"", part);
    if (part && (!strstr(err.text, part) || strchr(err.text, '\n')))
        fail_msg("\"%s\" is not in: %s", part, err.text);
    assert_int_equal(err.code == ERR_NONE, !part);
    free_built(m, g, b);
}

/* ---- keys ---- */

static void test_missing_keys(void **state)
{
    (void)state;
    static const char *const required[] = {
        "general.architecture", "llama.context_length",       "llama.embedding_length",
        "llama.block_count",    "llama.attention.head_count", "llama.attention.layer_norm_rms_epsilon",
    };
    for (size_t i = 0; i < sizeof required / sizeof *required; i++) {
        struct bytes b = read_model("llama");
        char text[128];
        snprintf(text, sizeof text, "key %s is missing", required[i]);
        rename_it(b, required[i]);
        expect(b, NULL, text);
    }
}

static void test_key_values(void **state)
{
    (void)state;
    static const struct {
        const char *override, *part;
    } cases[] = {
        {"general.architecture=int:7", "'general.architecture' is of type i64 instead of string"},
        {"llama.block_count=int:0", "key llama.block_count: 0 layers is out of range"},
        {"llama.block_count=int:1025", "key llama.block_count: 1025 layers is out of range"},
        {"llama.block_count=int:-1", "'llama.block_count' is -1"},
        {"llama.block_count=str:2", "'llama.block_count' is of type string instead of u32"},
        {"llama.block_count=int:3", "tensor blk.2.attn_norm.weight is missing"},
        {"llama.embedding_length=int:0", "key llama.embedding_length: 0 is out of range"},
        {"llama.embedding_length=int:1048577", "key llama.embedding_length: 1048577 is out of range"},
        {"llama.embedding_length=int:128", "tensor token_embd.weight is 64 x 320, expected 128 x 320"},
        {"llama.context_length=int:0", "key llama.context_length: 0 is out of range"},
        {"llama.context_length=int:2147483648", "key llama.context_length: 2147483648 is out of range"},
        {"llama.attention.head_count=int:0", "layer 0: 0 heads can't share 2 key/value heads"},
        {"llama.attention.head_count=int:3", "layer 0: 3 heads can't share 2 key/value heads"},
        {"llama.attention.head_count=int:2147483648",
         "key llama.attention.head_count: 2147483648 is out of range"},
        {"llama.attention.head_count_kv=int:0", "layer 0: 4 heads can't share 0 key/value heads"},
        {"llama.attention.head_count_kv=int:8", "layer 0: 4 heads can't share 8 key/value heads"},
        {"llama.attention.head_count_kv=int:1", "tensor blk.0.attn_k.weight is 64 x 32, expected 64 x 16"},
        {"llama.attention.key_length=int:0", "head sizes 0 and 16 are out of range"},
        {"llama.attention.value_length=int:4097", "head sizes 16 and 4097 are out of range"},
        {"llama.attention.key_length=int:32", "tensor blk.0.attn_q.weight is 64 x 64, expected 64 x 128"},
        {"llama.rope.dimension_count=int:15", "key llama.rope.dimension_count: 15 is odd"},
        {"llama.rope.dimension_count=int:18",
         "key llama.rope.dimension_count: 18 is odd or larger than a head"},
        {"llama.rope.dimension_count=int:0", "key llama.rope.dimension_count: 0, but layers are rotated"},
        {"llama.rope.freq_base=float:0", "key llama.rope.freq_base: 0 is out of range"},
        {"llama.rope.freq_base=float:-1e4", "key llama.rope.freq_base: -10000 is out of range"},
        {"llama.rope.freq_base=str:x", "'llama.rope.freq_base' is of type string instead of f32"},
        {"llama.rope.scaling.type=str:cubic", "key llama.rope.scaling.type: unknown scaling \"cubic\""},
        {"llama.rope.scaling.type=int:1", "'llama.rope.scaling.type' is of type i64 instead of string"},
        {"llama.rope.scaling.factor=float:1e-39", "key llama.rope.scaling.factor: "},
        {"llama.rope.scaling.factor=float:-2", "key llama.rope.scaling.factor: -2 is out of range"},
        {"llama.attention.layer_norm_rms_epsilon=float:-1",
         "key llama.attention.layer_norm_rms_epsilon: -1 is"},
        {"llama.feed_forward_length=int:95", "tensor blk.0.ffn_gate.weight is 64 x 96, expected 64 x 95"},
        {"llama.expert_count=int:8", "key llama.expert_used_count: 0 of 8 experts"},
        {"llama.expert_count=int:65537", "key llama.expert_count: 65537 is out of range"},
        {"llama.nextn_predict_layers=int:2", "key llama.nextn_predict_layers: 2 of 2 layers leave none"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect(read_model("llama"), cases[i].override, cases[i].part);
    expect(read_model("llama"), "llama.attention.head_count=int:4", NULL);
}

static void test_experts(void **state)
{
    (void)state;
    static const struct {
        const char *override, *part;
    } cases[] = {
        {"bailingmoe2.expert_used_count=int:13", "key bailingmoe2.expert_used_count: 13 of 12 experts"},
        {"bailingmoe2.expert_used_count=int:0", "key bailingmoe2.expert_used_count: 0 of 12 experts"},
        {"bailingmoe2.expert_used_count=int:7",
         "key bailingmoe2.expert_group_used_count: 2 of 4 groups for 7 experts"},
        {"bailingmoe2.expert_count=int:0", "key bailingmoe2.expert_count: 0 is out of range"},
        {"bailingmoe2.expert_count=int:16", "tensor blk.1.ffn_up_exps.weight is 64 x 32 x 12, expected"},
        {"bailingmoe2.expert_group_count=int:5",
         "key bailingmoe2.expert_group_count: 12 experts don't make 5"},
        {"bailingmoe2.expert_group_count=int:12",
         "key bailingmoe2.expert_group_count: 12 experts don't make 12"},
        {"bailingmoe2.expert_group_used_count=int:0", "key bailingmoe2.expert_group_used_count: 0 of 4"},
        {"bailingmoe2.expert_group_used_count=int:5", "key bailingmoe2.expert_group_used_count: 5 of 4"},
        {"bailingmoe2.expert_gating_func=int:4", "key bailingmoe2.expert_gating_func: 4 is unknown"},
        {"bailingmoe2.expert_gating_func=int:0", "key bailingmoe2.expert_gating_func is missing"},
        {"bailingmoe2.leading_dense_block_count=int:0", "tensor blk.0.ffn_up_exps.weight is missing"},
        {"bailingmoe2.leading_dense_block_count=int:2", "tensor blk.1.ffn_up.weight is missing"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect(read_model("bailingmoe2"), cases[i].override, cases[i].part);
    expect(read_model("bailingmoe2"), NULL, NULL);
    /* Layers that guess further tokens are left out: here one, and the other remains. */
    expect(read_model("bailingmoe2"), "bailingmoe2.nextn_predict_layers=int:1", NULL);
    expect(read_model("qwen3"), "qwen3.expert_count=int:8",
           "qwen3 with 8 experts is no family that is known");
    expect(read_model("ernie4_5-moe"), "ernie4_5-moe.interleave_moe_layer_step=int:0",
           "key ernie4_5-moe.interleave_moe_layer_step: 0 is out of range");
    expect(read_model("granitemoe"), "granitemoe.logit_scale=float:0",
           "key granitemoe.logit_scale is no divisor");
    expect(read_model("deepseek2"), "deepseek2.attention.temperature_scale=float:0.1",
           "key deepseek2.attention.temperature_length is missing");
    expect(read_model("deepseek2"), "deepseek2.attention.kv_lora_rank=int:31",
           "tensor blk.0.attn_kv_a_mqa.weight is 64 x 48, expected 64 x 47");
    static const char *const required[] = {"blk.1.ffn_down_exps.weight", "blk.1.ffn_gate_exps.weight",
                                           "blk.1.ffn_gate_inp.weight", "blk.1.ffn_up_shexp.weight"};
    for (size_t i = 0; i < sizeof required / sizeof *required; i++) {
        struct bytes b = read_model("bailingmoe2");
        char text[128];
        snprintf(text, sizeof text, "tensor %s is missing", required[i]);
        rename_it(b, required[i]);
        expect(b, NULL, text);
    }
    for (size_t i = 0; i < sizeof required / sizeof *required; i++) {
        struct bytes b = read_model("bailingmoe2");
        char text[128];
        snprintf(text, sizeof text, "tensor %s: type I32 can't be ", required[i]);
        set_type(b, required[i], GGML_I32);
        expect(b, NULL, text);
    }
    struct bytes b = read_model("gpt-oss");
    rename_it(b, "blk.0.attn_sinks.weight");
    expect(b, NULL, "tensor blk.0.attn_sinks.weight is missing");
    b = read_model("bailingmoe2");
    turn(b, "blk.1.ffn_down_exps.weight");
    expect(b, NULL, "tensor blk.1.ffn_down_exps.weight is 64 x 32 x 12, expected 32 x 64 x 12");
}

static void test_recurrent_layers(void **state)
{
    (void)state;
    static const struct {
        const char *model, *override, *part;
    } cases[] = {
        {"qwen35", "qwen35.ssm.conv_kernel=int:0", "key qwen35.ssm.conv_kernel: 0 is out of range"},
        {"qwen35", "qwen35.ssm.conv_kernel=int:3", "tensor blk.0.ssm_conv1d.weight is 4 x 160, expected 3 x"},
        {"qwen35", "qwen35.ssm.inner_size=int:97", "97 channels can't be split over 6 heads in 2 groups"},
        {"qwen35", "qwen35.ssm.group_count=int:4", "96 channels can't be split over 6 heads in 4 groups"},
        {"qwen35", "qwen35.ssm.state_size=int:4097", "key qwen35.ssm.state_size: 4097 is out of range"},
        {"qwen35", "qwen35.ssm.time_step_rank=int:2",
         "tensor blk.0.ssm_beta.weight is 64 x 6, expected 64 x 2"},
        {"qwen35", "qwen35.full_attention_interval=int:0", "key qwen35.full_attention_interval is 0"},
        {"qwen35", "qwen35.full_attention_interval=int:2",
         "tensor blk.1.attn_qkv.weight is 64 x 160, expected 64 x 384"},
        {"qwen35-mtp", "qwen35.nextn_predict_layers=int:4", "key qwen35.nextn_predict_layers: 4 of 4 layers"},
        {"lfm2", "lfm2.shortconv.l_cache=int:1", "key lfm2.shortconv.l_cache: 1 is out of range"},
        {"lfm2", "lfm2.shortconv.l_cache=int:4",
         "tensor blk.0.shortconv.conv.weight is 3 x 64, expected 4 x"},
        {"jamba", "jamba.ssm.time_step_rank=int:0", "key jamba.ssm.time_step_rank: 0 is out of range"},
        {"jamba", "jamba.ssm.inner_size=int:64", "tensor blk.0.ssm_in.weight is 64 x 256, expected 64 x 128"},
        {"mamba2", "mamba2.ssm.inner_size=int:127", "127 channels can't be split over 8 heads in 2 groups"},
        {"mamba2", "mamba2.ssm.group_count=int:1", "tensor blk.0.ssm_in.weight is 64 x 328, expected 64 x"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect(read_model(cases[i].model), cases[i].override, cases[i].part);
}

static void test_other_decoders(void **state)
{
    (void)state;
    expect(read_model("gpt2"), "gpt2.context_length=int:256",
           "tensor position_embd.weight is 64 x 512, expected 64 x 256");
    expect(read_model("gpt2"), "gpt2.attention.layer_norm_epsilon=float:-1",
           "key gpt2.attention.layer_norm_epsilon: -1 is out of range");
    struct bytes b = read_model("gpt2");
    rename_it(b, "gpt2.attention.layer_norm_epsilon");
    expect(b, NULL, "key gpt2.attention.layer_norm_epsilon is missing");
    b = read_model("gpt2");
    rename_it(b, "position_embd.weight");
    expect(b, NULL, "tensor position_embd.weight is missing");
    b = read_model("gpt2");
    set_type(b, "position_embd.weight", GGML_I32);
    expect(b, NULL, "tensor position_embd.weight: type I32 can't be used here");
    expect(read_model("llama4"), "llama4.interleave_moe_layer_step=int:0",
           "key llama4.interleave_moe_layer_step: 0 is out of range");
    b = read_model("stablelm");
    turn(b, "blk.0.attn_q_norm.weight");
    expect(b, NULL, "tensor blk.0.attn_q_norm.weight is 4 x 16, expected 16 x 4");
}

static void test_architectures(void **state)
{
    (void)state;
    char text[2048];
    snprintf(text, sizeof text, "architecture \"perceptron\" can't run yet; these can: %s", arch_names());
    expect(read_model("llama"), "general.architecture=str:perceptron", text);
    expect(read_model("llama"), "general.architecture=str:", "architecture \"\" can't run yet");
    static const char *const here[] = {"llama", "qwen2", "qwen3", "gemma3", "phi3", "smollm3"};
    for (size_t i = 0; i < sizeof here / sizeof *here; i++) {
        assert_true(arch_supported(str_of(here[i])));
        assert_non_null(strstr(text, here[i]));
        expect(read_model(here[i]), NULL, NULL);
    }
    assert_false(arch_supported(str_of("llam")));
    assert_false(arch_supported(str_of("llama2")));
    /* A family that asks for other keys. */
    expect(read_model("llama"), "general.architecture=str:qwen3", "key qwen3.context_length is missing");
}

static void test_sliding_window_patterns(void **state)
{
    (void)state;
    expect(read_model("gemma3"), "gemma3.attention.sliding_window_pattern=str:x",
           "'gemma3.attention.sliding_window_pattern' is of type string");
    expect(read_model("gemma3"), "gemma3.attention.sliding_window=int:-1",
           "'gemma3.attention.sliding_window' is -1");
    expect(read_model("gemma3"), "gemma3.attention.sliding_window_pattern=int:0", NULL);
}

/* ---- tensors ---- */

static const char *const llama_tensors[] = {
    "token_embd.weight",        "output_norm.weight",    "output.weight",         "blk.0.attn_norm.weight",
    "blk.0.attn_q.weight",      "blk.0.attn_k.weight",   "blk.0.attn_v.weight",   "blk.0.attn_output.weight",
    "blk.0.ffn_norm.weight",    "blk.0.ffn_gate.weight", "blk.0.ffn_up.weight",   "blk.0.ffn_down.weight",
    "blk.1.attn_norm.weight",   "blk.1.attn_q.weight",   "blk.1.attn_k.weight",   "blk.1.attn_v.weight",
    "blk.1.attn_output.weight", "blk.1.ffn_norm.weight", "blk.1.ffn_gate.weight", "blk.1.ffn_up.weight",
    "blk.1.ffn_down.weight",
};

enum { N_LLAMA_TENSORS = sizeof llama_tensors / sizeof *llama_tensors };

static bool has(const char *name, const char *part)
{
    return strstr(name, part) != NULL;
}

static void test_missing_tensors(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_LLAMA_TENSORS; i++) {
        const char *name = llama_tensors[i];
        struct bytes b = read_model("llama");
        char text[128];
        snprintf(text, sizeof text, "tensor %s is missing", name);
        if (has(name, "ffn_gate")) /* it may be the first half of ffn_up */
            snprintf(text, sizeof text, "tensor blk.%c.ffn_up.weight is 64 x 96, expected 64 x 192", name[4]);
        rename_it(b, name);
        expect(b, NULL, strcmp(name, "output.weight") == 0 ? NULL : text); /* tied then */
    }
}

static void test_turned_tensors(void **state)
{
    (void)state;
    int turned = 0;
    for (size_t i = 0; i < N_LLAMA_TENSORS; i++) {
        const char *name = llama_tensors[i];
        struct bytes b = read_model("llama");
        uint64_t ne[2];
        memcpy(ne, dims_of(b, name), sizeof ne);
        if (has(name, "norm") || ne[0] == ne[1]) {
            free(b.p);
            continue;
        }
        char text[128];
        snprintf(text, sizeof text, "tensor %s is ", name);
        turn(b, name);
        /* The embedding has as many rows as the model has tokens. */
        expect(b, NULL,
               has(name, "token_embd") ? "tensor token_embd.weight is 320 x 64, expected 64 x 64" : text);
        turned++;
    }
    assert_int_equal(turned, 2 + 2 * 5);
}

/* i32 has the size of f32, but is no type to multiply, to add or to look up. */
static void test_types_without_use(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_LLAMA_TENSORS; i++) {
        struct bytes b = read_model("llama");
        char text[128];
        snprintf(text, sizeof text, "tensor %s: type I32 can't be ", llama_tensors[i]);
        set_type(b, llama_tensors[i], GGML_I32);
        expect(b, NULL, text);
    }
}

static void test_rope_factors(void **state)
{
    (void)state;
    struct bytes b = read_model("llama-llama3");
    set_type(b, "rope_freqs.weight", GGML_I32);
    expect(b, NULL, "tensor rope_freqs.weight: type I32 can't be used here");
    expect(read_model("llama-llama3"), "llama.rope.dimension_count=int:8",
           "tensor rope_freqs.weight has 8 factors, expected 4");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_missing_keys),
        cmocka_unit_test(test_key_values),
        cmocka_unit_test(test_experts),
        cmocka_unit_test(test_recurrent_layers),
        cmocka_unit_test(test_other_decoders),
        cmocka_unit_test(test_architectures),
        cmocka_unit_test(test_sliding_window_patterns),
        cmocka_unit_test(test_missing_tensors),
        cmocka_unit_test(test_turned_tensors),
        cmocka_unit_test(test_types_without_use),
        cmocka_unit_test(test_rope_factors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
