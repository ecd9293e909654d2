/* Objects that _walk.c and _pump.c share: they know where the frames of one connection begin.
 *
 * Both halves of a connection walk over one receive buffer, and share the ring of requests that wait for a response.
 * All of this is used with the interpreter lock held. */

#ifndef KSP_WALK_H
#define KSP_WALK_H

#include <Python.h>
#include <stdint.h>

#define WALK_CAPSULE "kafka_share_proxy.forwarding.walk._walk.functions"

struct entry {
    int32_t correlation_id;
    int response_kind;  /* see response_kind_of */
    PyObject *expected; /* strong */
    PyObject *known;    /* strong, or NULL: dict of responses that were rewritten before, see addresses.Remembered */
};

/* Rewritten response for a client: size and body. The correlation id is the one of the received response. */
struct rewritten {
    PyObject *owner; /* strong: owns the memory of the pointers */
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
    Table *table;    /* of requests; NULL in a walk over responses */
    PyObject *group; /* strong, or NULL: group id of the last request with one */
    long long missing, bytes;
    int frame_max, quiet_s, in_flight_max, inspections;
    char flows;
} Walk;

/* Functions and types of _walk.c for _pump.c. */
struct walk_functions {
    PyTypeObject *requests, *responses;
    /* Return up to where buffer[start:end] is forwarded; -1 with an exception set. `view` is that buffer as a memoryview. */
    Py_ssize_t (*receive)(Walk *walk, const unsigned char *buffer, PyObject *view, Py_ssize_t start, Py_ssize_t end);
    /* Find how the response in buffer[0:end] was rewritten before. 1: found, and its request is no longer queued; 0: not
     * found, or larger than `most`; -1: exception. `size` NULL: it is forwarded as it arrived. */
    int (*recall)(
        Walk *walk, const unsigned char *buffer, Py_ssize_t end, Py_ssize_t most, struct rewritten *response);
    /* Return what expects the one whole response in buffer[0:end], by its method `on_response`. Its request is no longer
     * queued. NULL: nothing, no exception. */
    PyObject *(*take_expected)(Walk *walk, const unsigned char *buffer, Py_ssize_t end);
};

#endif
