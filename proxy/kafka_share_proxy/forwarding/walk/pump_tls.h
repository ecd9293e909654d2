/* TLS of the sockets that the pump serves, through the memory buffers of `ssl` (interfaces.TlsBuffers). OpenSSL is
 * called through methods of Python objects: its structures are private to the module `_ssl`, and may be linked into it.
 * Python does the rest: handshakes, accounting of memory, and bytes that the kernel does not accept. */
#ifndef KSP_PUMP_TLS_H
#define KSP_PUMP_TLS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <errno.h>
#include <sys/socket.h>

enum {
    TLS_CHUNK = 64 * 1024, /* tls_memory.CHUNK_BYTES */
    TLS_SHORT_CHUNK = 16 * 1024, /* tls_memory.SHORT_CHUNK_BYTES, and the maximum of one record */
    TLS_RECORDS = 64, /* transports.RECORDS_PER_READ */
};

struct tls {
    int users;
    PyObject *transport, *incoming, *outgoing, *session; /* strong */
    Py_ssize_t chunk; /* ciphertext to read from the kernel in one step */
    Py_ssize_t received_peak, sent_peak; /* of the buffers, which keep their size */
};

static unsigned char ciphertext[TLS_CHUNK];
static PyObject *name_pending, *name_read, *name_write, *name_unsent, *name_chunk, *wants_more;

static int prepare_tls(void)
{
    name_pending = PyUnicode_InternFromString("pending");
    name_read = PyUnicode_InternFromString("read");
    name_write = PyUnicode_InternFromString("write");
    name_unsent = PyUnicode_InternFromString("_unsent");
    name_chunk = PyUnicode_InternFromString("chunk_bytes");
    PyObject *ssl = PyImport_ImportModule("ssl");
    wants_more = ssl ? PyObject_GetAttrString(ssl, "SSLWantReadError") : NULL;
    Py_XDECREF(ssl);
    return name_pending && name_read && name_write && name_unsent && name_chunk && wants_more ? 0 : -1;
}

static struct tls *use_tls(struct tls *tls)
{
    if (tls)
        tls->users++;
    return tls;
}

static void leave_tls(struct tls *tls)
{
    if (!tls || --tls->users)
        return;
    Py_DECREF(tls->transport);
    Py_DECREF(tls->incoming);
    Py_DECREF(tls->outgoing);
    Py_DECREF(tls->session);
    PyMem_Free(tls);
}

/* Create the TLS of one direction. *created is NULL for None. */
static int new_tls(PyObject *buffers, struct tls **created)
{
    *created = NULL;
    if (buffers == Py_None)
        return 0;
    if (!PyTuple_Check(buffers) || PyTuple_Size(buffers) != 4) {
        PyErr_SetString(PyExc_ValueError, "TLS is a tuple of 4 (interfaces.TlsBuffers)");
        return -1;
    }
    struct tls *tls = PyMem_Calloc(1, sizeof *tls);
    if (!tls) {
        PyErr_NoMemory();
        return -1;
    }
    PyObject **each[] = {&tls->transport, &tls->incoming, &tls->outgoing, &tls->session};
    for (int i = 0; i < 4; i++)
        *each[i] = Py_NewRef(PyTuple_GetItem(buffers, i));
    tls->users = 1;
    tls->chunk = TLS_SHORT_CHUNK;
    *created = tls;
    return 0;
}

/* Return the bytes in a memory buffer; -1: exception. */
static Py_ssize_t in_buffer(PyObject *buffer)
{
    PyObject *pending = PyObject_GetAttr(buffer, name_pending);
    Py_ssize_t count = pending ? PyLong_AsSsize_t(pending) : -1;
    Py_XDECREF(pending);
    return count;
}

static Py_ssize_t counted(PyObject *result)
{
    Py_ssize_t count = result ? PyLong_AsSsize_t(result) : -1;
    Py_XDECREF(result);
    return count;
}

/* Call a method with these bytes that returns a number; -1: exception. */
static Py_ssize_t with_bytes(PyObject *object, PyObject *method, const void *bytes, Py_ssize_t size)
{
    PyObject *view = PyMemoryView_FromMemory((char *)bytes, size, PyBUF_READ);
    Py_ssize_t count = view ? counted(PyObject_CallMethodObjArgs(object, method, view, NULL)) : -1;
    Py_XDECREF(view);
    return count;
}

/* Decrypt one record into these bytes. 0: the end; -1: exception. */
static Py_ssize_t decrypt(struct tls *tls, char *into, Py_ssize_t room)
{
    PyObject *view = PyMemoryView_FromMemory(into, room, PyBUF_WRITE), *size = PyLong_FromSsize_t(room);
    Py_ssize_t count = -1;
    if (view && size)
        count = counted(PyObject_CallMethodObjArgs(tls->session, name_read, size, view, NULL));
    Py_XDECREF(view);
    Py_XDECREF(size);
    return count;
}

/* Report received bytes to the transport, which accounts for the memory and returns the size of the next chunk. */
static int count_received(struct tls *tls, Py_ssize_t size)
{
    Py_ssize_t before = tls->chunk;
    tls->chunk = TLS_SHORT_CHUNK;
    if (size <= tls->received_peak && size < before)
        return 0;
    Py_ssize_t chunk = counted(PyObject_CallMethod(tls->transport, "counted_received", "n", size));
    if (chunk < 0)
        return -1;
    if (size > tls->received_peak)
        tls->received_peak = size;
    tls->chunk = chunk < TLS_CHUNK ? chunk : TLS_CHUNK;
    return 0;
}

static int call_transport(struct tls *tls, const char *method)
{
    PyObject *result = PyObject_CallMethod(tls->transport, method, NULL);
    Py_XDECREF(result);
    return result ? 0 : -1;
}

/* Decrypt the received bytes. Return their number, with *rests set if the transport has to continue; 0: less than one
 * record; -1: exception. */
static Py_ssize_t decrypt_all(struct tls *tls, char *into, Py_ssize_t room, int *rests)
{
    Py_ssize_t filled = 0, buffered = 1;
    for (int records = 0; buffered > 0 && filled < room && records < TLS_RECORDS; records++) {
        Py_ssize_t count = decrypt(tls, into + filled, room - filled);
        if (count <= 0) {
            if (count < 0 && (filled || PyErr_ExceptionMatches(wants_more)))
                PyErr_Clear(); /* an error is raised again by the next read */
            else if (!count && !filled)
                PyErr_SetString(PyExc_EOFError, "the end of TLS");
            return filled || !PyErr_Occurred() ? filled : -1;
        }
        filled += count;
        buffered = in_buffer(tls->incoming);
    }
    *rests = buffered > 0 || filled == room;
    return buffered < 0 ? -1 : filled;
}

/* Receive and decrypt. Return the number of bytes, 0 for less than one record, or -errno as after `recv`, with -EPIPE for
 * the end. With -EPROTO an exception is set. */
static Py_ssize_t receive_tls(struct tls *tls, int fd, char *into, Py_ssize_t room, int *rests)
{
    ssize_t count = recv(fd, ciphertext, (size_t)tls->chunk, 0);
    if (count < 0)
        return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? 0 : -(Py_ssize_t)errno;
    if (!count)
        return -EPIPE;
    if (with_bytes(tls->incoming, name_write, ciphertext, count) < 0 || count_received(tls, count) < 0)
        return -EPROTO;
    Py_ssize_t filled = decrypt_all(tls, into, room, rests);
    Py_ssize_t unsent_own = filled < 0 ? 0 : in_buffer(tls->outgoing); /* such as a response to a change of keys */
    if (filled < 0 || unsent_own < 0 || (unsent_own && call_transport(tls, "flush_own") < 0))
        return -EPROTO;
    return filled;
}

/* Send the ciphertext. Return the bytes of plain text that count as sent: all or none. -1: exception. */
static Py_ssize_t send_encrypted(struct tls *tls, int fd, PyObject *encrypted, Py_ssize_t size)
{
    Py_ssize_t length = PyBytes_Size(encrypted);
    if (length < 0)
        return -1;
    if (length > tls->sent_peak) {
        PyObject *result = PyObject_CallMethod(tls->transport, "counted_sent", "n", length);
        Py_XDECREF(result);
        if (!result)
            return -1;
        tls->sent_peak = length;
    }
    ssize_t sent = send(fd, PyBytes_AsString(encrypted), (size_t)length, MSG_NOSIGNAL);
    if (sent == length)
        return size;
    if (sent < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)
        return PyErr_SetFromErrno(PyExc_OSError), -1;
    if (sent < 0)
        sent = 0;
    PyObject *result = PyObject_CallMethod(
        tls->transport, "not_accepted", "y#n", PyBytes_AsString(encrypted) + sent, length - sent, size);
    Py_XDECREF(result);
    return result ? 0 : -1;
}

/* Encrypt and send one piece. Return its size; 0: it is not sent yet; -1: exception. */
static Py_ssize_t send_piece(struct tls *tls, int fd, const void *bytes, Py_ssize_t size)
{
    size = with_bytes(tls->session, name_write, bytes, size);
    if (size < 0)
        return -1;
    PyObject *encrypted = PyObject_CallMethodObjArgs(tls->outgoing, name_read, NULL);
    Py_ssize_t sent = encrypted ? send_encrypted(tls, fd, encrypted, size) : -1;
    Py_XDECREF(encrypted);
    return sent;
}

/* Encrypt and send. Return the bytes that count as sent; -1: exception. */
static Py_ssize_t send_tls(struct tls *tls, int fd, const char *bytes, Py_ssize_t size)
{
    Py_ssize_t total = 0, piece_max = size, sent;
    PyObject *unsent = PyObject_GetAttr(tls->transport, name_unsent);
    int waits = unsent ? PyObject_IsTrue(unsent) : -1;
    Py_XDECREF(unsent);
    if (!waits && size > TLS_SHORT_CHUNK)
        piece_max = counted(PyObject_GetAttr(tls->transport, name_chunk));
    if (waits || piece_max <= 0)
        return PyErr_Occurred() ? -1 : 0;
    for (; total < size; total += sent) {
        sent = send_piece(tls, fd, bytes + total, size - total < piece_max ? size - total : piece_max);
        if (sent <= 0)
            return sent < 0 ? -1 : total;
    }
    return total;
}

#endif
