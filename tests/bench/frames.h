/* The least work of a Kafka proxy that a relay does not have, for `relay.c` built with -DFRAMES.
 *
 * Frames are followed through the bytes as they arrive: each request is queued with its correlation id and API key, and
 * each response must be that of the oldest. Responses to Metadata and ApiVersions are replaced by what an equal one was
 * rewritten to before. Nothing is decoded, refused, counted, limited or logged, and acks=0 is not recognised. */
#ifndef FRAMES_H
#define FRAMES_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define QUEUED 512 /* a power of two, more than kload has in flight */
#define FRAME_MAX (100 << 20)
#define REQUEST_HEAD 12
#define RESPONSE_HEAD 8
#define KEYS 19
enum { METADATA = 3, API_VERSIONS = 18 };

struct queue {
	unsigned first, count;
	struct { int32_t correlation_id; int key; } of[QUEUED];
};

struct walk {
	struct queue *queue; /* shared by both ends of a connection */
	int sends_requests;
	ssize_t missing;     /* bytes of the last frame that have not arrived */
	int cut;             /* bytes of a head that waits for its rest */
	char head[REQUEST_HEAD];
};

struct remembered { size_t size; char *body, *rewritten; };
static struct remembered remembered[KEYS];
static int own_port, broker_port;

static int32_t int32_at(const char *p)
{
	const unsigned char *u = (const unsigned char *)p;
	return (int32_t)((uint32_t)u[0] << 24 | (uint32_t)u[1] << 16 | (uint32_t)u[2] << 8 | u[3]);
}

/* Remember a response, with our port wherever the broker's is. */
static void rewrite(struct remembered *r, const char *body, size_t size)
{
	char from[4] = {0, 0, (char)(broker_port >> 8), (char)broker_port};
	char to[4] = {0, 0, (char)(own_port >> 8), (char)own_port};
	r->size = size;
	r->body = realloc(r->body, size);
	r->rewritten = realloc(r->rewritten, size);
	memcpy(r->body, body, size);
	memcpy(r->rewritten, body, size);
	for (char *p = r->rewritten, *end = p + size; (p = memmem(p, end - p, from, 4)); p += 4)
		memcpy(p, to, 4);
}

static void replace(int key, char *body, size_t size)
{
	struct remembered *r = &remembered[key];
	if (r->size != size || memcmp(r->body, body, size)) rewrite(r, body, size);
	memcpy(body, r->rewritten, size);
}

/* Queue the request whose head this is. */
static int walk_request(struct queue *q, const char *head)
{
	if (q->count == QUEUED) return -1;
	if (!q->count) q->first = 0;
	unsigned at = (q->first + q->count++) & (QUEUED - 1);
	q->of[at].key = (unsigned char)head[4] << 8 | (unsigned char)head[5];
	q->of[at].correlation_id = int32_at(head + 8);
	return 0;
}

static int walk_response(struct queue *q, char *frame, ssize_t size, ssize_t received)
{
	if (!q->count || q->of[q->first].correlation_id != int32_at(frame + 4)) return -1;
	int key = q->of[q->first].key;
	q->first = (q->first + 1) & (QUEUED - 1);
	q->count--;
	if ((key == METADATA || key == API_VERSIONS) && size <= received)
		replace(key, frame + RESPONSE_HEAD, size - RESPONSE_HEAD);
	return 0;
}

/* Return how many of these bytes may be sent; the others are the beginning of a head. -1: not Kafka. */
static ssize_t walk(struct walk *w, char *bytes, ssize_t count)
{
	ssize_t at = w->missing, least = w->sends_requests ? REQUEST_HEAD : RESPONSE_HEAD;
	while (at + least <= count) {
		ssize_t size = (ssize_t)int32_at(bytes + at) + 4;
		if (size < least || size > FRAME_MAX) return -1;
		if (w->sends_requests ? walk_request(w->queue, bytes + at) : walk_response(w->queue, bytes + at, size, count - at))
			return -1;
		at += size;
	}
	w->missing = at > count ? at - count : 0;
	w->cut = at < count ? count - at : 0;
	if (w->cut) memcpy(w->head, bytes + at, w->cut);
	return count - w->cut;
}

#endif
