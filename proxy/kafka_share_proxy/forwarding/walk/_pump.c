/* The wait of the loop and the fast path of every connection, in C; see pump.py.
 *
 * One iteration: wait on the epoll, then for each ready socket that has a way whose `flows` is set: one receive, one walk
 * over the frames, one send. Python does the rest: sockets without a way, ways whose `flows` is not set, frames that
 * cannot be forwarded as they arrive, peers that do not accept all bytes. The iteration repeats until its time is over or
 * a call of Python has left something to do, so that forwarded traffic never wakes the interpreter.
 *
 * The interpreter lock is released while waiting and held otherwise: ways and rings are Python objects. */

#define PY_SSIZE_T_CLEAN
#include "pump_tls.h"
#include "walk.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <sys/epoll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* A request finds little of this file in the caches: the broker and the client ran since the last one. What most requests
 * do not need therefore has its own functions, and what they need is contiguous. */
#define APART __attribute__((noinline))
#define RARE(condition) __builtin_expect(!!(condition), 0)

#define BATCH 256
#define ENDED 0
#define COPIED_MAX 16384 /* bytes of a rewritten response */
#define NOTED_S 0.005 /* iterations.NOTED_S */
enum { VERSION = 7 }; /* pump.BUILT_VERSION */

struct way {
    Walk *walk; /* strong; NULL: this descriptor has no way */
    int out;
    struct tls *receives, *sends; /* NULL: plain text */
};

/* A request that is sent when all events of the wait are served. */
struct deferred {
    Walk *walk; /* strong */
    PyObject *data; /* strong; bytes */
    int fd;
};

typedef struct {
    PyObject_HEAD
    /* what each request needs, in the same lines of the cache */
    double woke, checked; /* end of the last wait, and last reading of the clock since */
    double alarm_at; /* INFINITY: not set */
    int alarm; /* timer in the epoll that ends waits; -1: no timer */
    int epoll;
    int ends; /* true if this iteration ends after this wait */
    int called; /* true if this wait called Python, which may have left calls */
    int ways_count;
    struct way *ways; /* by descriptor */
    Py_ssize_t deferred_count;
    PyObject *view; /* the receive buffer */
    Py_buffer buffer;
    PyObject *ready; /* descriptor -> callback of the mask */
    PyObject *calls, *later_calls; /* calls that the reactor makes after this iteration; NULL: it ends after any call */
    struct deferred *deferred;
    Py_ssize_t deferred_room;
    PyObject *iterations; /* receives reports of long calls (iterations.Iterations) */
} Pump;

static struct walk_functions *functions;
static PyObject *name_failed, *name_self, *name_took, *name_ended, *name_on_response, *name_walked, *name_sent, *name_doing;

static double monotonic(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Report an exception of a callback to its owner (faults.FaultOwner). Return -1 if it must end the loop. */
APART static int settle(PyObject *owner, PyObject *result)
{
    if (result) {
        Py_DECREF(result);
        return 0;
    }
    if (!PyErr_ExceptionMatches(PyExc_Exception))
        return -1;
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    PyErr_NormalizeException(&type, &error, &traceback);
    if (traceback)
        PyException_SetTraceback(error, traceback);
    result = owner ? PyObject_CallMethodObjArgs(owner, name_failed, error, NULL) : NULL;
    if (result) {
        Py_DECREF(result);
        Py_XDECREF(type);
        Py_XDECREF(error);
        Py_XDECREF(traceback);
        return 0;
    }
    if (!owner)
        PyErr_Restore(type, error, traceback);
    else {
        Py_XDECREF(type);
        Py_XDECREF(error);
        Py_XDECREF(traceback);
    }
    return -1;
}

APART static int report(PyObject *iterations, PyObject *method, PyObject *callee, double seconds)
{
    PyObject *reported = PyFloat_FromDouble(seconds), *result = NULL;
    if (reported)
        result = PyObject_CallMethodObjArgs(iterations, method, callee ? callee : reported, callee ? reported : NULL, NULL);
    Py_XDECREF(reported);
    Py_XDECREF(result);
    return result ? 0 : -1;
}

/* Account for a call of Python that returned `outcome`. */
APART static int called(Pump *self, PyObject *callee, int outcome)
{
    double started = self->checked;
    self->checked = monotonic();
    if (outcome < 0 || self->checked - started <= NOTED_S)
        return outcome;
    return report(self->iterations, name_took, callee, self->checked - started);
}

/* Call the callback of the reactor, for a socket without a way or with `flows` not set; or note that the alarm rang. */
APART static int call_ready(Pump *self, int fd, uint32_t mask)
{
    if (fd == self->alarm) {
        self->alarm_at = INFINITY;
        self->ends = 1;
        return 0;
    }
    PyObject *key = PyLong_FromLong(fd);
    PyObject *callback = key ? PyDict_GetItemWithError(self->ready, key) : NULL;
    Py_XDECREF(key);
    if (!callback)
        return PyErr_Occurred() ? -1 : 0; /* closed earlier in this iteration */
    Py_INCREF(callback);
    self->ends = 1;
    PyObject *owner = NULL, *result = PyObject_CallFunction(callback, "I", (unsigned)mask);
    if (!result) {
        PyObject *type, *error, *traceback;
        PyErr_Fetch(&type, &error, &traceback);
        owner = PyObject_GetAttr(callback, name_self);
        if (!owner)
            PyErr_Clear();
        PyErr_Restore(type, error, traceback);
    }
    int outcome = settle(owner, result);
    Py_XDECREF(owner);
    outcome = called(self, callback, outcome);
    Py_DECREF(callback);
    return outcome;
}

/* Call a method of two numbers. */
static PyObject *call_with_numbers(Walk *walk, PyObject *name, Py_ssize_t first, Py_ssize_t second)
{
    PyObject *one = PyLong_FromSsize_t(first), *other = one ? PyLong_FromSsize_t(second) : NULL;
    PyObject *result = other ? PyObject_CallMethodObjArgs((PyObject *)walk, name, one, other, NULL) : NULL;
    Py_XDECREF(one);
    Py_XDECREF(other);
    return result;
}

APART static int call_way(Pump *self, Walk *walk, PyObject *name, Py_ssize_t first, Py_ssize_t second)
{
    self->called = 1;
    int outcome = settle((PyObject *)walk, call_with_numbers(walk, name, first, second));
    return called(self, (PyObject *)walk, outcome);
}

/* Let Python handle the frame at which the walk stopped. 1: forward the bytes as they arrived; 0: done; -1: exception. */
APART static int call_walked(Pump *self, Walk *walk, Py_ssize_t upto, Py_ssize_t count)
{
    self->called = 1;
    PyObject *result = call_with_numbers(walk, name_walked, upto, count);
    int passes = result == Py_True;
    int outcome = called(self, (PyObject *)walk, settle((PyObject *)walk, result));
    return outcome < 0 ? -1 : passes;
}

/* Let what expects this response handle it. 1: forward it as it arrived; 0: done, or nothing expects it; -1: exception. */
APART static int call_expected(Pump *self, Walk *walk, PyObject *expected, Py_ssize_t count)
{
    self->called = 1;
    PyObject *frame = PyBytes_FromStringAndSize(self->buffer.buf, count);
    PyObject *result = frame ? PyObject_CallMethodObjArgs(expected, name_on_response, frame, NULL) : NULL;
    Py_XDECREF(frame);
    int passes = result == Py_True;
    int outcome = called(self, (PyObject *)walk, settle((PyObject *)walk, result));
    return outcome < 0 ? -1 : passes;
}

/* Let Python handle what the walk stopped at. 1: forward the bytes as they arrived; 0: done; -1: exception. */
APART static int call_python(Pump *self, Walk *walk, Py_ssize_t upto, Py_ssize_t count)
{
    PyObject *expected = upto ? NULL : functions->take_expected(walk, self->buffer.buf, count);
    if (!expected)
        return call_walked(self, walk, upto, count);
    int passes = call_expected(self, walk, expected, count);
    Py_DECREF(expected);
    return passes;
}

/* Report the exception that the bytes of this way have caused. */
APART static int settle_unexpected(Pump *self, Walk *walk)
{
    self->called = 1;
    return called(self, (PyObject *)walk, settle((PyObject *)walk, NULL));
}

static int is_crowded(Walk *walk)
{
    return walk->pending->count > walk->in_flight_max;
}

/* Clear the exception and return 1, unless it must end the loop. */
APART static int clear_exception(void)
{
    if (!PyErr_ExceptionMatches(PyExc_Exception))
        return 0;
    PyErr_Clear();
    return 1;
}

APART static ssize_t send_by_tls(const struct way *way, const void *bytes, Py_ssize_t size)
{
    Py_ssize_t sent = send_tls(way->sends, way->out, bytes, size);
    return sent >= 0 ? sent : clear_exception() ? -EPIPE : -EINTR;
}

/* Return the bytes sent, 0 for none now, or -errno. An exception that must end the loop stays set; the result is negative.
 *
 * Inline like `hold` and `drop`, because plain text must not pay for TLS: a small request takes 900 instructions here, of
 * which calls of these three were 50. */
static inline ssize_t send_out(const struct way *way, const void *bytes, Py_ssize_t size)
{
    if (RARE(way->sends))
        return send_by_tls(way, bytes, size);
    ssize_t sent = send(way->out, bytes, (size_t)size, MSG_NOSIGNAL);
    if (sent >= 0)
        return sent;
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? 0 : -errno;
}

/* Send pieces, of which the last may be outside the buffer. Afterwards all bytes are in the buffer unless all were sent.
 *
 * Small ones are copied into it first, because one `sendmsg` of pieces takes longer than a copy and a `send`. */
APART static ssize_t send_pieces(Pump *self, const struct way *way, struct iovec *pieces)
{
    unsigned char *buffer = self->buffer.buf;
    ssize_t total = 8 + (ssize_t)pieces[2].iov_len, sent = 0;
    if (!way->sends && total > COPIED_MAX) {
        struct msghdr message = {.msg_iov = pieces, .msg_iovlen = 3};
        sent = sendmsg(way->out, &message, MSG_NOSIGNAL);
        if (sent == total)
            return sent;
        if (sent < 0)
            sent = errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? 0 : -errno;
    }
    memmove(buffer + 8, pieces[2].iov_base, pieces[2].iov_len);
    memmove(buffer, pieces[0].iov_base, 4);
    return way->sends || total <= COPIED_MAX ? send_out(way, buffer, total) : sent;
}

/* Send a response as it was rewritten before. 1: done; 0: Python has to handle it; -1: exception. */
APART static int pass_rewritten(Pump *self, Walk *walk, const struct way *way, Py_ssize_t count)
{
    unsigned char *buffer = self->buffer.buf;
    struct rewritten response;
    int is_known = functions->recall(walk, buffer, count, self->buffer.len, &response);
    if (is_known <= 0)
        return is_known;
    struct iovec pieces[3] = {
        {(void *)(response.size ? response.size : (char *)buffer), 4},
        {buffer + 4, 4},
        {response.size ? (void *)response.rest : buffer + 8, (size_t)(response.size ? response.rest_bytes : count - 8)},
    };
    ssize_t total = 8 + (ssize_t)pieces[2].iov_len, sent = send_pieces(self, way, pieces);
    walk->bytes += total;
    /* Python takes the rest from the buffer and sends it later */
    int outcome = PyErr_Occurred() || (sent < total && call_way(self, walk, name_sent, sent, total) < 0) ? -1 : 1;
    Py_DECREF(response.owner);
    return outcome;
}

/* Handle the end of a stream, or an error of it. 0: done; -1: exception. */
APART static int receive_end(Pump *self, Walk *walk, ssize_t count)
{
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
        return 0;
    return call_way(self, walk, name_ended, count ? errno : ENDED, 0);
}

/* As `receive`, from a socket with TLS. */
APART static int receive_by_tls(Pump *self, int fd, Walk *walk, const struct way *way, ssize_t *count)
{
    int rests = 0;
    *count = receive_tls(way->receives, fd, self->buffer.buf, self->buffer.len, &rests);
    if (!*count)
        return 0;
    if (*count > 0) {
        if (rests)
            self->called = 1;
        return rests && call_transport(way->receives, "continue_later") < 0 ? settle_unexpected(self, walk) : 1;
    }
    /* as in TlsTransport, any form of the end counts */
    int is_end = *count == -EPIPE || (PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_EOFError));
    if (PyErr_Occurred() && !clear_exception())
        return -1;
    return call_way(self, walk, name_ended, is_end ? ENDED : -*count, 0);
}

/* Receive into the buffer. 1: there are *count bytes; 0: nothing to do; -1: exception. */
static inline int receive(Pump *self, int fd, Walk *walk, const struct way *way, ssize_t *count)
{
    if (RARE(way->receives))
        return receive_by_tls(self, fd, walk, way, count);
    *count = recv(fd, self->buffer.buf, (size_t)self->buffer.len, 0);
    return RARE(*count <= 0) ? receive_end(self, walk, *count) : 1;
}

/* Handle bytes of which the walk does not forward all. 1: forward them as they arrived; 0: done; -1: exception. */
APART static int pass_walked(Pump *self, Walk *walk, const struct way *way, Py_ssize_t upto, Py_ssize_t count)
{
    if (upto < 0)
        return settle_unexpected(self, walk);
    if (!upto) {
        int passed = pass_rewritten(self, walk, way, count);
        if (passed)
            return passed < 0 && PyErr_Occurred() ? settle_unexpected(self, walk) : 0;
    }
    return call_python(self, walk, upto, count);
}

/* Let Python continue after a send of part of the bytes, or with too many requests in flight. */
APART static int report_sent(Pump *self, Walk *walk, Py_ssize_t sent, Py_ssize_t count)
{
    if (sent < 0 && PyErr_Occurred())
        return -1;
    return call_way(self, walk, name_sent, sent, count);
}

/* One receive, one walk, one send. */
static int pass(Pump *self, int fd, Walk *walk, const struct way *way)
{
    ssize_t count;
    int received = receive(self, fd, walk, way, &count);
    if (RARE(received <= 0))
        return received;
    walk->quiet_s = 0;
    Py_ssize_t upto = functions->receive(walk, self->buffer.buf, self->view, 0, count);
    if (RARE(upto != count)) {
        int passes = pass_walked(self, walk, way, upto, count);
        if (passes <= 0)
            return passes;
    }
    walk->bytes += count;
    ssize_t sent = send_out(way, self->buffer.buf, count);
    if (RARE(sent != count || is_crowded(walk)))
        return report_sent(self, walk, sent, count);
    return 0;
}

static inline struct way hold(const struct way *way)
{
    return (struct way){(Walk *)Py_XNewRef((PyObject *)way->walk), way->out, use_tls(way->receives), use_tls(way->sends)};
}

/* Release what `hold` has acquired. */
static inline void drop(const struct way *held)
{
    Py_XDECREF((PyObject *)held->walk);
    if (RARE(held->receives))
        leave_tls(held->receives);
    if (RARE(held->sends))
        leave_tls(held->sends);
}

static void release(struct way *way)
{
    struct way released = *way;
    *way = (struct way){NULL, -1, NULL, NULL};
    drop(&released);
}

static int serve(Pump *self, const struct epoll_event *event)
{
    int fd = event->data.fd;
    struct way *way = fd < self->ways_count ? &self->ways[fd] : NULL;
    if (RARE(!way || !way->walk || event->events != EPOLLIN || !way->walk->flows))
        return call_ready(self, fd, event->events);
    struct way held = hold(way); /* Python code that is called may end the connection */
    int outcome = pass(self, fd, held.walk, &held);
    drop(&held);
    return outcome;
}

/* Send the requests that were deferred to the end of the wait, unless their way was forgotten. */
APART static int send_deferred(Pump *self)
{
    int outcome = 0;
    for (Py_ssize_t i = 0; i < self->deferred_count; i++) {
        struct deferred request = self->deferred[i];
        if (!outcome && request.fd < self->ways_count && self->ways[request.fd].walk == request.walk) {
            Py_ssize_t size = PyBytes_Size(request.data);
            struct way way = hold(&self->ways[request.fd]);
            ssize_t sent = send_out(&way, PyBytes_AsString(request.data), size);
            drop(&way);
            if (sent < 0 && PyErr_Occurred()) {
                outcome = -1;
            } else if (sent != size) {
                PyObject *result = PyObject_CallMethod((PyObject *)request.walk, "kept", "nO", (Py_ssize_t)sent, request.data);
                outcome = called(self, (PyObject *)request.walk, settle((PyObject *)request.walk, result));
            }
        }
        Py_DECREF((PyObject *)request.walk);
        Py_DECREF(request.data);
    }
    self->deferred_count = 0;
    return outcome;
}

/* Round up to milliseconds: after an early wake-up the iteration would have nothing to do. */
static int milliseconds(double wait)
{
    if (wait <= 0)
        return 0;
    return wait * 1e3 >= INT_MAX - 1 ? INT_MAX - 1 : (int)(wait * 1e3) + 1;
}

/* Make a wait that starts now end at `until` or before. Return its timeout in milliseconds.
 *
 * A timeout makes the kernel start and cancel a timer in each wait: 6 % of the CPU of a relay in C for a small request
 * (21.1 us without, 22.4 us with one). The alarm stays set over many waits, and may ring early. */
APART static int set_alarm(Pump *self, double now, double until)
{
    int timeout = milliseconds(until - now);
    if (!timeout || self->alarm < 0)
        return timeout;
    time_t seconds = (time_t)until;
    struct itimerspec at = {.it_value = {seconds, (long)((until - (double)seconds) * 1e9)}};
    if (timerfd_settime(self->alarm, TFD_TIMER_ABSTIME, &at, NULL) < 0)
        return timeout;
    self->alarm_at = until;
    return -1;
}

static inline int timeout_until(Pump *self, double now, double until)
{
    if (self->alarm >= 0 && self->alarm_at <= until && now < until)
        return -1; /* the alarm is set already */
    return set_alarm(self, now, until);
}

/* Handle a wait that failed. 0: it was interrupted by a signal; -1: exception. */
APART static int settle_failed_wait(void)
{
    /* a signal received while sockets are served waits for Python until this iteration is over */
    if (errno == EINTR)
        return PyErr_CheckSignals();
    PyErr_SetFromErrno(PyExc_OSError);
    return -1;
}

/* Create the alarm. Without one, for example at the limit of open files, waits have a timeout. */
static int new_alarm(int epoll)
{
    int alarm = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = alarm}; /* never read: setting it again clears it */
    if (alarm >= 0 && epoll_ctl(epoll, EPOLL_CTL_ADD, alarm, &event) < 0) {
        close(alarm);
        return -1;
    }
    return alarm;
}

/* True if Python has left nothing that has to follow this wait: no calls, and nothing to reset in `Iterations.doing`. */
APART static int may_continue(Pump *self)
{
    if (!self->calls || PyObject_Size(self->calls) || PyObject_Size(self->later_calls))
        return 0;
    PyObject *doing = PyObject_GetAttr(self->iterations, name_doing);
    if (!doing)
        PyErr_Clear();
    Py_XDECREF(doing);
    return doing == Py_None;
}

/* Serve the events of one wait. 0: continue; 1: this iteration is over; -1: exception. */
static int wait_once(Pump *self, double now, double until)
{
    struct epoll_event events[BATCH];
    int count, epoll = self->epoll;
    double woke = self->woke;
    int timeout = timeout_until(self, now, until);
    if (RARE(woke > 0 && now - woke > NOTED_S) && report(self->iterations, name_ended, NULL, now - woke) < 0)
        return -1;
    Py_BEGIN_ALLOW_THREADS
    count = epoll_wait(epoll, events, BATCH, timeout);
    woke = monotonic(); /* waiting for the interpreter lock is not idle time */
    Py_END_ALLOW_THREADS
    self->woke = self->checked = woke;
    self->called = 0;
    if (RARE(count < 0) && settle_failed_wait() < 0)
        return -1;
    for (int i = 0; i < count; i++)
        if (RARE(serve(self, &events[i]) < 0))
            return -1; /* the rest is reported again, and deferred requests are sent in the next iteration */
    if (RARE(self->deferred_count) && send_deferred(self) < 0)
        return -1;
    return count <= 0 || RARE(self->ends) || (self->called && !may_continue(self));
}

static PyObject *pump_iterate(PyObject *object, PyObject *argument)
{
    Pump *self = (Pump *)object;
    double wait = PyFloat_AsDouble(argument);
    if (wait == -1.0 && PyErr_Occurred())
        return NULL;
    double now = monotonic(), until = now + wait;
    int outcome;
    self->ends = 0;
    if (self->deferred_count) { /* the last wait ended with an exception; chores of `kept` are due before the next wait */
        outcome = send_deferred(self);
    } else {
        do
            outcome = wait_once(self, now, until);
        while (!outcome && (now = monotonic()) < until);
    }
    if (outcome < 0)
        return NULL;
    Py_RETURN_NONE;
}

static int reserve(Pump *self, int fd)
{
    if (fd < self->ways_count)
        return 0;
    int count = self->ways_count ? self->ways_count : 64;
    while (count <= fd)
        count *= 2;
    struct way *ways = PyMem_Realloc(self->ways, (size_t)count * sizeof *ways);
    if (!ways) {
        PyErr_NoMemory();
        return -1;
    }
    for (int i = self->ways_count; i < count; i++)
        ways[i] = (struct way){NULL, -1, NULL, NULL};
    self->ways = ways;
    self->ways_count = count;
    return 0;
}

static PyObject *pump_connect(PyObject *object, PyObject *args)
{
    Pump *self = (Pump *)object;
    int fd, out;
    PyObject *walk, *receives = Py_None, *sends = Py_None;
    if (!PyArg_ParseTuple(args, "iOi|OO", &fd, &walk, &out, &receives, &sends))
        return NULL;
    if (fd < 0 || out < 0 ||
        !(PyObject_TypeCheck(walk, functions->requests) || PyObject_TypeCheck(walk, functions->responses))) {
        PyErr_SetString(PyExc_ValueError, "connect(descriptor, walk, descriptor to send to)");
        return NULL;
    }
    if (reserve(self, fd) < 0)
        return NULL;
    struct way connected = {NULL, out, NULL, NULL}, previous = self->ways[fd];
    if (new_tls(receives, &connected.receives) < 0 || new_tls(sends, &connected.sends) < 0) {
        release(&connected);
        return NULL;
    }
    connected.walk = (Walk *)Py_NewRef(walk);
    self->ways[fd] = connected;
    release(&previous);
    Py_RETURN_NONE;
}

static PyObject *pump_send_later(PyObject *object, PyObject *const *args, Py_ssize_t count)
{
    Pump *self = (Pump *)object;
    if (count != 2 || !PyBytes_Check(args[1])) {
        PyErr_SetString(PyExc_TypeError, "send_later(descriptor of a way, bytes)");
        return NULL;
    }
    long fd = PyLong_AsLong(args[0]);
    if (fd == -1 && PyErr_Occurred())
        return NULL;
    if (fd < 0 || fd >= self->ways_count || !self->ways[fd].walk) {
        PyErr_SetString(PyExc_ValueError, "send_later(descriptor of a way, bytes)");
        return NULL;
    }
    if (self->deferred_count == self->deferred_room) {
        Py_ssize_t room = self->deferred_room ? 2 * self->deferred_room : 16;
        struct deferred *deferred = PyMem_Realloc(self->deferred, (size_t)room * sizeof *deferred);
        if (!deferred)
            return PyErr_NoMemory();
        self->deferred = deferred;
        self->deferred_room = room;
    }
    Walk *walk = (Walk *)Py_NewRef((PyObject *)self->ways[fd].walk);
    self->deferred[self->deferred_count++] = (struct deferred){walk, Py_NewRef(args[1]), (int)fd};
    Py_RETURN_NONE;
}

static PyObject *pump_forget(PyObject *object, PyObject *argument)
{
    Pump *self = (Pump *)object;
    long fd = PyLong_AsLong(argument);
    if (fd == -1 && PyErr_Occurred())
        return NULL;
    if (fd >= 0 && fd < self->ways_count)
        release(&self->ways[fd]);
    Py_RETURN_NONE;
}

static PyObject *pump_interrupt(PyObject *object, PyObject *nothing)
{
    (void)nothing;
    ((Pump *)object)->ends = 1;
    Py_RETURN_NONE;
}

static int pump_init(PyObject *object, PyObject *args, PyObject *names)
{
    Pump *self = (Pump *)object;
    PyObject *view, *ready, *iterations, *calls = NULL, *later_calls = NULL;
    int epoll;
    (void)names;
    if (self->view) {
        PyErr_SetString(PyExc_TypeError, "a pump is initialised once");
        return -1;
    }
    if (!PyArg_ParseTuple(args, "iOO!O|(OO)", &epoll, &view, &PyDict_Type, &ready, &iterations, &calls, &later_calls) ||
        PyObject_GetBuffer(view, &self->buffer, PyBUF_WRITABLE) < 0)
        return -1;
    self->epoll = epoll;
    self->alarm = new_alarm(epoll);
    self->alarm_at = INFINITY;
    self->view = Py_NewRef(view);
    self->ready = Py_NewRef(ready);
    self->iterations = Py_NewRef(iterations);
    self->calls = Py_XNewRef(calls);
    self->later_calls = Py_XNewRef(later_calls);
    return 0;
}

static int pump_traverse(PyObject *object, visitproc visit, void *arg)
{
    Pump *self = (Pump *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->ready);
    Py_VISIT(self->iterations);
    Py_VISIT(self->calls);
    Py_VISIT(self->later_calls);
    for (int i = 0; i < self->ways_count; i++) {
        struct tls *each[] = {self->ways[i].receives, self->ways[i].sends};
        Py_VISIT(self->ways[i].walk);
        for (int side = 0; side < 2; side++)
            if (each[side] && each[side]->users == 1)
                Py_VISIT(each[side]->transport);
    }
    for (Py_ssize_t i = 0; i < self->deferred_count; i++)
        Py_VISIT(self->deferred[i].walk);
    return 0;
}

static int pump_clear(PyObject *object)
{
    Pump *self = (Pump *)object;
    for (int i = 0; i < self->ways_count; i++)
        release(&self->ways[i]);
    while (self->deferred_count) {
        struct deferred request = self->deferred[--self->deferred_count];
        Py_DECREF((PyObject *)request.walk);
        Py_DECREF(request.data);
    }
    return 0;
}

static void pump_dealloc(PyObject *object)
{
    Pump *self = (Pump *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    pump_clear(object);
    PyMem_Free(self->ways);
    PyMem_Free(self->deferred);
    if (self->view) {
        PyBuffer_Release(&self->buffer);
        if (self->alarm >= 0)
            close(self->alarm);
    }
    Py_XDECREF(self->view);
    Py_XDECREF(self->ready);
    Py_XDECREF(self->iterations);
    Py_XDECREF(self->calls);
    Py_XDECREF(self->later_calls);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

static PyMethodDef pump_methods[] = {
    {"iterate", pump_iterate, METH_O, "iterate(wait_s): see loop.interfaces.Pump."},
    {"connect", pump_connect, METH_VARARGS, "connect(fd, walk, out_fd, receives=None, sends=None): see loop.interfaces.Pump."},
    {"send_later", (PyCFunction)(void (*)(void))pump_send_later, METH_FASTCALL, "send_later(fd, data): see loop.interfaces.Pump."},
    {"forget", pump_forget, METH_O, "forget(fd): see loop.interfaces.Pump."},
    {"interrupt", pump_interrupt, METH_NOARGS, "interrupt(): see loop.interfaces.Pump."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot pump_slots[] = {
    {Py_tp_doc, "Pump(epoll_fd, buffer, ready, iterations, queues=None): see loop.interfaces.Pump."},
    {Py_tp_init, pump_init},
    {Py_tp_methods, pump_methods},
    {Py_tp_dealloc, pump_dealloc},
    {Py_tp_traverse, pump_traverse},
    {Py_tp_clear, pump_clear},
    {0, NULL},
};

static PyType_Spec pump_spec = {
    "kafka_share_proxy.forwarding.walk._pump.Pump", sizeof(Pump), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, pump_slots,
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "kafka_share_proxy.forwarding.walk._pump", "The loop's fast path in C. See pump.", -1,
    NULL, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__pump(void)
{
    PyObject *walk = PyImport_ImportModule("kafka_share_proxy.forwarding.walk._walk"); /* stays imported: its types are in use */
    PyObject *capsule = walk ? PyObject_GetAttrString(walk, "functions") : NULL;
    functions = capsule ? PyCapsule_GetPointer(capsule, WALK_CAPSULE) : NULL;
    Py_XDECREF(capsule);
    name_failed = PyUnicode_InternFromString("failed");
    name_self = PyUnicode_InternFromString("__self__");
    name_took = PyUnicode_InternFromString("took");
    name_ended = PyUnicode_InternFromString("ended");
    name_on_response = PyUnicode_InternFromString("on_response");
    name_walked = PyUnicode_InternFromString("walked");
    name_sent = PyUnicode_InternFromString("sent");
    name_doing = PyUnicode_InternFromString("doing");
    if (!functions || !name_failed || !name_self || !name_took || !name_ended || !name_on_response ||
        !name_walked || !name_sent || !name_doing || prepare_tls() < 0)
        return NULL;
    PyObject *module = PyModule_Create(&definition);
    PyObject *type = module ? PyType_FromSpec(&pump_spec) : NULL;
    if (!type || PyModule_AddObjectRef(module, "Pump", type) < 0 || PyModule_AddIntConstant(module, "VERSION", VERSION) < 0)
        return NULL;
    Py_DECREF(type);
    return module;
}
