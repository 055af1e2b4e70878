/* Stop texts in a stream: passes text through, but holds back an ending that may be the start of a stop text
 * until it is known what follows. A stop text, once complete, never comes out, not even in part. */
#ifndef BASE_STOP_H
#define BASE_STOP_H

#include "base/buf.h"

struct stop {
    struct str *texts; /* not owned */
    size_t n;
    size_t hit;       /* the text that is complete, when stop_add says so */
    struct buf held;  /* came in, not gone out */
    struct buf ready; /* what the last call let out */
};

/* Empty texts never stop anything. All-zero but for texts and n is ready for use. */
void stop_release(struct stop *s);
void stop_reset(struct stop *s);
/* Takes text in; *out is what may be shown, valid until the next call. True: a stop text is complete, *out
 * ends before it, and what follows it is dropped. Of several the one that is complete first counts.
 */
bool stop_add(struct stop *s, struct str text, struct str *out);
/* At the end of the text: what was held back. */
struct str stop_end(struct stop *s);

#endif
