/* From graph to text: the IR document, one line per port, in the order the nodes were made.
 *
 * Time is linear in the size of the text; numbers are put by hand because a large model has some ten thousand
 * of them. The reader of OpenVINO wants `data` attributes, ports with element type and dimensions, and edges
 * by layer and port; input ports are counted from 0, output ports go on counting behind them. */
#include "ir/graph.h"

static void put_u64(struct buf *b, uint64_t v)
{
    char digits[20];
    size_t at = sizeof digits;
    do {
        digits[--at] = (char)('0' + v % 10);
        v /= 10;
    } while (v);
    buf_add(b, digits + at, sizeof digits - at);
}

static void put_dim(struct buf *b, int64_t d)
{
    if (d == IR_DYN)
        buf_puts(b, "-1");
    else
        put_u64(b, (uint64_t)d);
}

/* Names come out of files: markup is escaped, and control characters, which XML forbids, become '?'. */
static void put_escaped(struct buf *b, const char *z)
{
    static const char *const as[256] = {['&'] = "&amp;", ['<'] = "&lt;", ['>'] = "&gt;", ['"'] = "&quot;"};
    const char *from = z;
    for (; *z; z++) {
        unsigned char c = (unsigned char)*z;
        const char *instead = c < 0x20 ? "?" : as[c];
        if (!instead)
            continue;
        buf_add(b, from, (size_t)(z - from));
        buf_puts(b, instead);
        from = z + 1;
    }
    buf_add(b, from, (size_t)(z - from));
}

static void put_attr(struct buf *b, const char *name, const char *value)
{
    buf_putc(b, ' ');
    buf_puts(b, name);
    buf_puts(b, "=\"");
    put_escaped(b, value);
    buf_putc(b, '"');
}

static void put_attr_u64(struct buf *b, const char *name, uint64_t v)
{
    buf_putc(b, ' ');
    buf_puts(b, name);
    buf_puts(b, "=\"");
    put_u64(b, v);
    buf_putc(b, '"');
}

/* shape="?,64" */
static void put_shape_attr(struct buf *b, struct ir_shape s)
{
    buf_puts(b, " shape=\"");
    for (int i = 0; i < s.rank; i++) {
        if (i)
            buf_putc(b, ',');
        if (s.d[i] == IR_DYN)
            buf_putc(b, '?');
        else
            put_u64(b, (uint64_t)s.d[i]);
    }
    buf_putc(b, '"');
}

static void put_port(struct buf *b, int id, const struct value *v, bool output)
{
    buf_puts(b, "        <port");
    put_attr_u64(b, "id", (uint64_t)id);
    put_attr(b, "precision", ir_types[v->type].precision);
    if (output && v->tensor_names)
        put_attr(b, "names", v->tensor_names);
    if (v->shape.rank == 0) {
        buf_puts(b, "/>\n");
        return;
    }
    buf_putc(b, '>');
    for (int i = 0; i < v->shape.rank; i++) {
        buf_puts(b, "<dim>");
        put_dim(b, v->shape.d[i]);
        buf_puts(b, "</dim>");
    }
    buf_puts(b, "</port>\n");
}

static void put_data(const struct ir *g, struct buf *b, const struct node *n, uint64_t tail_at)
{
    if (n->kind == KIND_OP && n->n_attr == 0)
        return;
    buf_puts(b, "      <data");
    if (n->kind != KIND_OP) {
        const struct value *v = &g->values[n->first_out];
        put_attr(b, "element_type", ir_types[v->type].element);
        put_shape_attr(b, v->shape);
    }
    if (n->kind == KIND_CONST_REF || n->kind == KIND_CONST_COPY) {
        put_attr_u64(b, "offset", n->offset + (n->kind == KIND_CONST_COPY ? tail_at : 0));
        put_attr_u64(b, "size", n->size);
    }
    for (int i = 0; i < n->n_attr; i++)
        put_attr(b, n->attr[i].name, n->attr[i].value);
    buf_puts(b, "/>\n");
}

static void put_info(struct buf *b, const struct node *n)
{
    if (n->n_info == 0)
        return;
    buf_puts(b, "      <rt_info>\n");
    for (int i = 0; i < n->n_info; i++) {
        buf_puts(b, "        <user_data");
        put_attr(b, "name", n->info[i].name);
        put_attr(b, "value", n->info[i].value);
        buf_puts(b, "/>\n");
    }
    buf_puts(b, "      </rt_info>\n");
}

static void put_layer(const struct ir *g, struct buf *b, size_t id, uint64_t tail_at)
{
    const struct node *n = &g->nodes[id];
    buf_puts(b, "    <layer");
    put_attr_u64(b, "id", id);
    put_attr(b, "name", n->name);
    put_attr(b, "type", n->type);
    put_attr(b, "version", n->opset);
    buf_puts(b, ">\n");
    put_data(g, b, n, tail_at);
    put_info(b, n);
    if (n->n_in) {
        buf_puts(b, "      <input>\n");
        for (int i = 0; i < n->n_in; i++)
            put_port(b, i, &g->values[g->inputs[n->first_in + i]], false);
        buf_puts(b, "      </input>\n");
    }
    if (n->n_out) {
        buf_puts(b, "      <output>\n");
        for (int i = 0; i < n->n_out; i++)
            put_port(b, n->n_in + i, &g->values[n->first_out + i], true);
        buf_puts(b, "      </output>\n");
    }
    buf_puts(b, "    </layer>\n");
}

static void put_edges(const struct ir *g, struct buf *b, size_t id)
{
    const struct node *n = &g->nodes[id];
    for (int i = 0; i < n->n_in; i++) {
        ir_val v = g->inputs[n->first_in + i];
        const struct node *from = &g->nodes[g->values[v].node];
        buf_puts(b, "    <edge");
        put_attr_u64(b, "from-layer", (uint64_t)g->values[v].node);
        put_attr_u64(b, "from-port", (uint64_t)(from->n_in + (v - from->first_out)));
        put_attr_u64(b, "to-layer", id);
        put_attr_u64(b, "to-port", (uint64_t)i);
        buf_puts(b, "/>\n");
    }
}

static int check_blob(const struct ir *g, uint64_t blob_size, struct err *err)
{
    for (size_t i = 0; i < g->n_nodes; i++) {
        const struct node *n = &g->nodes[i];
        if (n->kind == KIND_CONST_REF && (n->size > blob_size || n->offset > blob_size - n->size))
            return err_set(err, ERR_RANGE, "%s: bytes %llu to %llu are outside the weights (%llu bytes)",
                           n->name, (unsigned long long)n->offset, (unsigned long long)(n->offset + n->size),
                           (unsigned long long)blob_size);
    }
    return 0;
}

int ir_write(const struct ir *g, uint64_t blob_size, struct buf *xml, struct buf *tail, struct err *err)
{
    if (ir_failed(g, err))
        return -1;
    if (blob_size > INT64_MAX - IR_ALIGN)
        return err_set(err, ERR_RANGE, "%s: the weights are too large", g->name);
    if (check_blob(g, blob_size, err) < 0)
        return -1;
    uint64_t tail_at = (blob_size + IR_ALIGN - 1) / IR_ALIGN * IR_ALIGN;

    buf_puts(xml, "<?xml version=\"1.0\"?>\n<net");
    put_attr(xml, "name", g->name);
    buf_puts(xml, " version=\"11\">\n  <layers>\n");
    for (size_t i = 0; i < g->n_nodes; i++)
        put_layer(g, xml, i, tail_at);
    buf_puts(xml, "  </layers>\n  <edges>\n");
    for (size_t i = 0; i < g->n_nodes; i++)
        put_edges(g, xml, i);
    buf_puts(xml, "  </edges>\n</net>\n");
    buf_add(tail, g->data.p, g->data.n);
    if (xml->failed || tail->failed)
        return err_set(err, ERR_MEMORY, "%s: no memory for the graph's text", g->name);
    return 0;
}
