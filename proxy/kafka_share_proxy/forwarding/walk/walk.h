/* What _walk.c and runtime/_pump.c share: the objects that know where one connection's frames begin.
 *
 * Both halves of a connection walk over one receive buffer; what waits for an answer stands in a ring they share.
 * Everything here is used with the interpreter lock held. */

#ifndef KSP_WALK_H
#define KSP_WALK_H

#include <Python.h>
#include <stdint.h>

#define WALK_CAPSULE "kafka_share_proxy.forwarding.walk._walk.functions"

struct entry {
    int32_t correlation_id;
    int gathers;        /* its answer does not simply pass */
    PyObject *expected; /* strong */
    PyObject *known;    /* strong, or NULL: a dict of answers that were rewritten before, see addresses.Remembered */
};

/* What a client gets in place of an answer: size, correlation id and body. */
struct rewritten {
    PyObject *kept; /* strong: what the pointers lead into */
    const char *size, *rest;
    Py_ssize_t rest_bytes;
};

typedef struct {
    PyObject_HEAD
    struct entry *ring; /* size is a power of two, or 0 */
    Py_ssize_t size, first, count;
} Pending;

typedef struct table Table;

typedef struct {
    PyObject_HEAD
    Pending *pending;
    Table *table;    /* of requests; NULL in a walk over answers */
    PyObject *group; /* strong, or NULL: the id of the group that a request named last */
    long long left, bytes;
    int frame_max, quiet_s, in_flight_max, looks;
    char flows;
} Walk;

/* Requests and answers in the layout of this header's users; see _walk.c. */
struct walk_functions {
    PyTypeObject *requests, *answers;
    /* Up to where buffer[start:end] passes; -1 with an exception set. `view` is that buffer as a memoryview. */
    Py_ssize_t (*receive)(Walk *walk, const unsigned char *buffer, PyObject *view, Py_ssize_t start, Py_ssize_t end);
    /* The one answer that buffer[0:end] is, if it was rewritten before. 1: found, and its request is no longer queued;
     * 0: not so, or larger than `most`; -1: exception. `size` NULL: it passes as it came. */
    int (*recall)(
        Walk *walk, const unsigned char *buffer, Py_ssize_t end, Py_ssize_t most, struct rewritten *found);
};

#endif
