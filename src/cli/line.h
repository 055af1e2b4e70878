/* Lines from a person: edited with history on a terminal, plain otherwise. */
#ifndef CLI_LINE_H
#define CLI_LINE_H

#include "base/buf.h"

struct line_reader;

enum line_result { LINE_OK, LINE_END, LINE_INTERRUPTED };

/* `simple`: no editing, even on a terminal. */
struct line_reader *line_reader_new(bool simple);
void line_reader_free(struct line_reader *r);
/* One message: a line, and as long as lines end in a backslash the next ones too. Without the last newline.
 * LINE_END: end of input (Ctrl-D); LINE_INTERRUPTED: Ctrl-C. */
enum line_result line_read(struct line_reader *r, struct buf *out);

#endif
