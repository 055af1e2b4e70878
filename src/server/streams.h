/* Streams that can be read again: what a request with a header X-Conversation-Id streams is also kept here
 * for a while, goes on when its client has gone, and can be read from any byte on (llama-server's
 * /v1/stream).
 *
 * A conversation has one stream; a new one ends the one before. Kept are the last MAX_BYTES of each, for
 * KEPT_S seconds after its end, and not more than MAX_STREAMS. */
#ifndef SERVER_STREAMS_H
#define SERVER_STREAMS_H

#include "server/http.h"

struct run;
struct stream;
struct streams;

struct streams *streams_new(void);
void streams_free(struct streams *all); /* nobody may use one any more */

/* Opens one for a run's text. NULL: there are too many whose text is still being written. */
struct stream *stream_open(struct streams *all, const char *id, struct run *r);
void stream_add(struct stream *s, const char *p, size_t n);
/* The run is at its end; `failed` before it had any text: nothing is kept. Until then the stream is the
 * run's. */
void stream_close(struct stream *s, bool failed);

#endif
