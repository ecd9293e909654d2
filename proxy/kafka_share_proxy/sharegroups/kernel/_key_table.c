/* Unsettled offsets by the hash of their key. key_table.py has the Python fallback; tests compare the two.
 *
 * Each added offset is a row, numbered from the first one ever added. The unsettled rows of a key are a chain in the order
 * of offsets: its entry, in a table with open addressing, knows the first and the last row. A row that is settled before
 * the first one of its chain stays linked until the chain moves past it. Limited API of CPython 3.11.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { VERSION = 1 }; /* key_table.BUILT_VERSION */
enum { TRIMMED_AT_ONCE = 1000, ROWS_MIN = 64, SLOTS_MIN = 64, NO_ROW = -1 };

typedef struct {
    int64_t offset;
    uint64_t hash;
    int64_t next; /* row of the same key, NO_ROW: none */
    int64_t is_settled;
} Row;

typedef struct {
    uint64_t hash;
    int64_t first, last; /* rows. first is NO_ROW in a free slot */
    int64_t waiting;     /* unsettled rows after the first one */
} Entry;

typedef struct {
    PyObject_HEAD
    Row *rows;
    int64_t base; /* number of the row rows[0] */
    Py_ssize_t count, room;
    Entry *slots;
    int bits; /* 1 << bits slots */
    Py_ssize_t used;
    uint64_t seed; /* odd, so that clients cannot choose keys which share a slot */
    int64_t blocked, unsettled;
} Table;

static Row *row_of(const Table *of, int64_t number) { return of->rows + (number - of->base); }

/* ---- slots ---- */

static size_t slot_of(const Table *of, uint64_t hash) { return (size_t)((hash * of->seed) >> (64 - of->bits)); }

/* Return the entry of a key, or the free slot for it. */
static Entry *entry_of(const Table *of, uint64_t hash) {
    const size_t mask = ((size_t)1 << of->bits) - 1;
    size_t at = slot_of(of, hash);
    while (of->slots[at].first != NO_ROW && of->slots[at].hash != hash) at = (at + 1) & mask;
    return of->slots + at;
}

static Entry *free_slots(int bits) {
    const size_t count = (size_t)1 << bits;
    Entry *slots = PyMem_Malloc(count * sizeof *slots);
    for (size_t i = 0; slots && i < count; i++) slots[i] = (Entry){0, NO_ROW, NO_ROW, 0};
    return slots;
}

/* Make room for one more entry. False: no memory, and nothing has changed. */
static int reserve_slot(Table *of) {
    if ((size_t)(of->used + 1) * 2 <= (size_t)1 << of->bits) return 1;
    Entry *old = of->slots, *slots = free_slots(of->bits + 1);
    if (!slots) return 0;
    const size_t count = (size_t)1 << of->bits;
    of->slots = slots;
    of->bits++;
    for (size_t i = 0; i < count; i++)
        if (old[i].first != NO_ROW) *entry_of(of, old[i].hash) = old[i];
    PyMem_Free(old);
    return 1;
}

/* Free the slot of an entry, and close the gap that it leaves. */
static void remove_entry(Table *of, Entry *entry) {
    const size_t mask = ((size_t)1 << of->bits) - 1;
    size_t hole = (size_t)(entry - of->slots), at = hole;
    for (;;) {
        at = (at + 1) & mask;
        if (of->slots[at].first == NO_ROW) break;
        const size_t home = slot_of(of, of->slots[at].hash);
        if (((at - home) & mask) < ((at - hole) & mask)) continue; /* it is at or after its home already */
        of->slots[hole] = of->slots[at];
        hole = at;
    }
    of->slots[hole].first = NO_ROW;
    of->used--;
}

/* ---- rows ---- */

/* Return the index of the first row at or after an offset. */
static Py_ssize_t index_from(const Table *of, int64_t offset, Py_ssize_t low) {
    Py_ssize_t high = of->count;
    while (low < high) {
        const Py_ssize_t middle = low + (high - low) / 2;
        if (of->rows[middle].offset < offset) low = middle + 1;
        else high = middle;
    }
    return low;
}

static int reserve_rows(Table *of, Py_ssize_t added) {
    if (of->count + added <= of->room) return 1;
    Py_ssize_t room = of->room * 2 > of->count + added ? of->room * 2 : of->count + added;
    Row *rows = PyMem_Realloc(of->rows, (size_t)room * sizeof *rows);
    if (!rows) return 0;
    of->rows = rows;
    of->room = room;
    return 1;
}

/* Put an unsettled row at the end of the chain of its key, whose slot exists. True if it is not the first there. */
static int link_row(Table *of, int64_t number) {
    Row *row = row_of(of, number);
    Entry *entry = entry_of(of, row->hash);
    row->next = NO_ROW;
    of->unsettled++;
    if (entry->first == NO_ROW) {
        *entry = (Entry){row->hash, number, number, 0};
        of->used++;
        return 0;
    }
    row_of(of, entry->last)->next = number;
    entry->last = number;
    entry->waiting++;
    of->blocked++;
    return 1;
}

/* Settle a row. Return the number of the row that is now the first of its key; NO_ROW: none, or the first has not changed. */
static int64_t settle_row(Table *of, int64_t number) {
    Row *row = row_of(of, number);
    if (row->is_settled) return NO_ROW;
    row->is_settled = 1;
    of->unsettled--;
    Entry *entry = entry_of(of, row->hash);
    int64_t next = NO_ROW;
    if (entry->first == number) {
        for (next = row->next; next != NO_ROW && row_of(of, next)->is_settled;) next = row_of(of, next)->next;
        if (next == NO_ROW) {
            remove_entry(of, entry);
            return NO_ROW;
        }
        entry->first = next;
    }
    entry->waiting--;
    of->blocked--;
    return next;
}

/* Remove the settled rows at the front with lower offsets, if they are many or all. */
static void trim_rows(Table *of, int64_t offset) {
    Py_ssize_t count = index_from(of, offset, 0);
    if (count < TRIMMED_AT_ONCE && count != of->count) return;
    for (Py_ssize_t i = 0; i < count; i++)
        if (!of->rows[i].is_settled) count = i;
    of->count -= count;
    of->base += count;
    memmove(of->rows, of->rows + count, (size_t)of->count * sizeof *of->rows);
}

/* ---- rows that become the first of their keys ---- */

typedef struct {
    int64_t *rows;
    Py_ssize_t count, room;
} Freed;

static int add_freed(Freed *to, int64_t number) {
    if (to->count == to->room) {
        const Py_ssize_t room = to->room ? to->room * 2 : 16;
        int64_t *rows = PyMem_Realloc(to->rows, (size_t)room * sizeof *rows);
        if (!rows) return 0;
        to->rows = rows;
        to->room = room;
    }
    to->rows[to->count++] = number;
    return 1;
}

static int is_later(const void *a, const void *b) {
    const int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;
    return left < right ? -1 : left > right;
}

/* Return the offsets of the rows that are still unsettled, ascending. */
static PyObject *freed_offsets(const Table *of, Freed *freed) {
    PyObject *offsets = PyList_New(0);
    if (freed->count) qsort(freed->rows, (size_t)freed->count, sizeof *freed->rows, is_later);
    for (Py_ssize_t i = 0; offsets && i < freed->count; i++) {
        const Row *row = row_of(of, freed->rows[i]);
        if (row->is_settled) continue;
        PyObject *offset = PyLong_FromLongLong(row->offset);
        if (!offset || PyList_Append(offsets, offset) < 0) Py_CLEAR(offsets);
        Py_XDECREF(offset);
    }
    return offsets;
}

/* Settle the rows from one index to before another. False: no memory. */
static int settle_rows(Table *of, Py_ssize_t from, Py_ssize_t to, Freed *freed) {
    for (Py_ssize_t i = from; i < to; i++) {
        const int64_t next = settle_row(of, of->base + i);
        if (next != NO_ROW && !add_freed(freed, next)) return 0;
    }
    return 1;
}

static PyObject *settle_ranges(Table *of, PyObject *ranges, Freed *freed) {
    Py_ssize_t end = 0;
    for (Py_ssize_t i = 0, count = PyList_Size(ranges); i < count; i++) {
        long long first, last;
        PyObject *range = PyList_GetItem(ranges, i);
        if (!PyTuple_Check(range)) return PyErr_Format(PyExc_TypeError, "ranges are a list of (first, last)");
        if (!PyArg_ParseTuple(range, "LL", &first, &last)) return NULL;
        const Py_ssize_t begin = index_from(of, first, end);
        end = last == INT64_MAX ? of->count : index_from(of, last + 1, begin);
        if (!settle_rows(of, begin, end, freed)) return PyErr_NoMemory();
    }
    return freed_offsets(of, freed);
}

/* ---- methods ---- */

static PyObject *add_keys(Table *of, const Py_buffer *offsets, const Py_buffer *hashes) {
    const Py_ssize_t count = offsets->len / (Py_ssize_t)sizeof(int64_t);
    const int64_t *offset = offsets->buf;
    const uint64_t *hash = hashes->buf;
    if (offsets->len != hashes->len || offsets->itemsize != sizeof(int64_t) || hashes->itemsize != sizeof(uint64_t))
        return PyErr_Format(PyExc_ValueError, "offsets and hashes are arrays of 64 bits of the same length");
    int64_t before = of->count ? of->rows[of->count - 1].offset : INT64_MIN;
    for (Py_ssize_t i = 0; i < count; before = offset[i++])
        if (offset[i] <= before) return PyErr_Format(PyExc_ValueError, "offset %lld is added after %lld", (long long)offset[i], (long long)before);
    PyObject *blocked = PyList_New(0);
    if (blocked && !reserve_rows(of, count)) {
        Py_DECREF(blocked);
        return PyErr_NoMemory();
    }
    for (Py_ssize_t i = 0; blocked && i < count; i++) {
        if (!reserve_slot(of)) {
            Py_DECREF(blocked);
            return PyErr_NoMemory();
        }
        of->rows[of->count] = (Row){offset[i], hash[i], NO_ROW, 0};
        of->count++;
        if (!link_row(of, of->base + of->count - 1)) continue;
        PyObject *number = PyLong_FromLongLong(offset[i]);
        if (!number || PyList_Append(blocked, number) < 0) Py_CLEAR(blocked);
        Py_XDECREF(number);
    }
    return blocked;
}

static PyObject *table_add(PyObject *self, PyObject *args) {
    PyObject *offsets, *hashes, *blocked = NULL;
    Py_buffer offsets_buffer, hashes_buffer;
    if (!PyArg_ParseTuple(args, "OO", &offsets, &hashes) || PyObject_GetBuffer(offsets, &offsets_buffer, PyBUF_ND) < 0) return NULL;
    if (PyObject_GetBuffer(hashes, &hashes_buffer, PyBUF_ND) == 0) {
        blocked = add_keys((Table *)self, &offsets_buffer, &hashes_buffer);
        PyBuffer_Release(&hashes_buffer);
    }
    PyBuffer_Release(&offsets_buffer);
    return blocked;
}

static PyObject *table_settle(PyObject *self, PyObject *ranges) {
    Freed freed = {NULL, 0, 0};
    if (!PyList_Check(ranges)) return PyErr_Format(PyExc_TypeError, "ranges are a list of (first, last)");
    PyObject *offsets = settle_ranges((Table *)self, ranges, &freed);
    PyMem_Free(freed.rows);
    return offsets;
}

static PyObject *table_settle_below(PyObject *self, PyObject *argument) {
    Table *of = (Table *)self;
    Freed freed = {NULL, 0, 0};
    const long long offset = PyLong_AsLongLong(argument);
    if (PyErr_Occurred()) return NULL;
    const int is_done = settle_rows(of, 0, index_from(of, offset, 0), &freed);
    PyObject *offsets = is_done ? freed_offsets(of, &freed) : PyErr_NoMemory();
    PyMem_Free(freed.rows);
    if (offsets) trim_rows(of, offset);
    return offsets;
}

static PyObject *table_trim(PyObject *self, PyObject *argument) {
    const long long offset = PyLong_AsLongLong(argument);
    if (PyErr_Occurred()) return NULL;
    trim_rows((Table *)self, offset);
    return Py_NewRef(Py_None);
}

/* Nothing needs memory here: the remaining keys are fewer than before. */
static PyObject *table_drop_from(PyObject *self, PyObject *argument) {
    Table *of = (Table *)self;
    const long long offset = PyLong_AsLongLong(argument);
    if (PyErr_Occurred()) return NULL;
    of->count = index_from(of, offset, 0);
    for (size_t i = 0; i < (size_t)1 << of->bits; i++) of->slots[i].first = NO_ROW;
    of->used = 0;
    of->blocked = of->unsettled = 0;
    for (Py_ssize_t i = 0; i < of->count; i++)
        if (!of->rows[i].is_settled) link_row(of, of->base + i);
    return Py_NewRef(Py_None);
}

static PyObject *table_is_blocked(PyObject *self, PyObject *argument) {
    const Table *of = (const Table *)self;
    const long long offset = PyLong_AsLongLong(argument);
    if (PyErr_Occurred()) return NULL;
    const Py_ssize_t index = index_from(of, offset, 0);
    if (index == of->count || of->rows[index].offset != offset) return Py_NewRef(Py_False);
    const Entry *entry = entry_of(of, of->rows[index].hash);
    return Py_NewRef(entry->first != NO_ROW && entry->first != of->base + index ? Py_True : Py_False);
}

static PyObject *table_settled_from(PyObject *self, PyObject *argument) {
    const Table *of = (const Table *)self;
    const long long offset = PyLong_AsLongLong(argument);
    if (PyErr_Occurred()) return NULL;
    return PyLong_FromLongLong(of->count - index_from(of, offset, 0) - of->unsettled);
}

/* Insert an entry among the hottest, most records first, then the lowest offset. */
static Py_ssize_t insert_hot(const Entry **hot, Py_ssize_t count, Py_ssize_t count_max, const Entry *entry) {
    Py_ssize_t at = count < count_max ? count : count_max;
    while (at && (hot[at - 1]->waiting < entry->waiting || (hot[at - 1]->waiting == entry->waiting && hot[at - 1]->first > entry->first))) at--;
    if (at == count_max) return count;
    const Py_ssize_t moved_end = count < count_max ? count : count_max - 1;
    memmove(hot + at + 1, hot + at, (size_t)(moved_end - at) * sizeof *hot);
    hot[at] = entry;
    return moved_end + 1;
}

static PyObject *table_hottest(PyObject *self, PyObject *argument) {
    const Table *of = (const Table *)self;
    const Py_ssize_t count_max = PyLong_AsSsize_t(argument);
    if (PyErr_Occurred()) return NULL;
    if (count_max < 1 || count_max > 1000) return PyErr_Format(PyExc_ValueError, "%zd keys are not 1 to 1000", count_max);
    const Entry **hot = PyMem_Malloc((size_t)count_max * sizeof *hot);
    if (!hot) return PyErr_NoMemory();
    Py_ssize_t count = 0;
    for (size_t i = 0; i < (size_t)1 << of->bits; i++)
        if (of->slots[i].first != NO_ROW && of->slots[i].waiting) count = insert_hot(hot, count, count_max, of->slots + i);
    PyObject *keys = PyList_New(0);
    for (Py_ssize_t i = 0; keys && i < count; i++) {
        PyObject *key = Py_BuildValue("(KLL)", (unsigned long long)hot[i]->hash, (long long)row_of(of, hot[i]->first)->offset, (long long)hot[i]->waiting);
        if (!key || PyList_Append(keys, key) < 0) Py_CLEAR(keys);
        Py_XDECREF(key);
    }
    PyMem_Free(hot);
    return keys;
}

/* ---- the type ---- */

static PyObject *table_blocked(PyObject *self, void *unused) {
    (void)unused;
    return PyLong_FromLongLong(((const Table *)self)->blocked);
}

static PyObject *table_new(PyTypeObject *type, PyObject *args, PyObject *names) {
    unsigned long long seed;
    (void)names;
    if (!PyArg_ParseTuple(args, "K", &seed)) return NULL;
    Table *of = (Table *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (!of) return NULL;
    of->seed = (uint64_t)seed | 1;
    of->bits = 6;
    of->room = ROWS_MIN;
    of->rows = PyMem_Malloc(ROWS_MIN * sizeof *of->rows);
    of->slots = free_slots(of->bits);
    if (of->rows && of->slots) return (PyObject *)of;
    Py_DECREF(of);
    return PyErr_NoMemory();
}

static void table_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    PyMem_Free(((Table *)self)->rows);
    PyMem_Free(((Table *)self)->slots);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyMethodDef methods[] = {
    {"add", table_add, METH_VARARGS, "add(offsets, hashes): see key_table."},
    {"settle", table_settle, METH_O, "settle(ranges): see key_table."},
    {"settle_below", table_settle_below, METH_O, "settle_below(offset): see key_table."},
    {"trim", table_trim, METH_O, "trim(offset): see key_table."},
    {"drop_from", table_drop_from, METH_O, "drop_from(offset): see key_table."},
    {"is_blocked", table_is_blocked, METH_O, "is_blocked(offset): see key_table."},
    {"settled_from", table_settled_from, METH_O, "settled_from(offset): see key_table."},
    {"hottest", table_hottest, METH_O, "hottest(most): see key_table."},
    {NULL, NULL, 0, NULL},
};

static PyObject *table_unsettled(PyObject *self, void *unused) {
    (void)unused;
    return PyLong_FromLongLong(((const Table *)self)->unsettled);
}

static PyGetSetDef properties[] = {
    {"blocked", table_blocked, NULL, "See key_table.", NULL},
    {"unsettled", table_unsettled, NULL, "See key_table.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot type_slots[] = {
    {Py_tp_doc, "KeyTable(seed): see key_table."},
    {Py_tp_new, table_new},
    {Py_tp_methods, methods},
    {Py_tp_getset, properties},
    {Py_tp_dealloc, table_dealloc},
    {0, NULL},
};

static PyType_Spec spec = {"kafka_share_proxy.sharegroups.kernel._key_table.KeyTable", sizeof(Table), 0, Py_TPFLAGS_DEFAULT, type_slots};

static int prepare(PyObject *module) {
    PyObject *type = PyType_FromSpec(&spec);
    const int is_added = type ? PyModule_AddObjectRef(module, "KeyTable", type) : -1;
    Py_XDECREF(type);
    return is_added < 0 ? -1 : PyModule_AddIntConstant(module, "VERSION", VERSION);
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, (void *)prepare}, {0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "kafka_share_proxy.sharegroups.kernel._key_table",
    .m_doc = "Unsettled offsets by the hash of their key.",
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__key_table(void) { return PyModuleDef_Init(&definition); }
