/* The kernel that finds records under sanitizers (harness.h).
 *
 * Records areas, and runs of batches, are damaged at random. Every buffer and every column has its exact size, so that
 * an access one byte outside ends the run. What is found must lie within the area, in order, at ascending offsets. */
#define RECORD_POSITIONS_CORE
#include "../../proxy/kafka_share_proxy/wire/records/_record_positions.c"
#include "harness.h"

enum { RUN_MAX = 4 };

static size_t damage(uint8_t *b, size_t size) {
    static const uint8_t EXTREMES[] = {0, 1, 2, 3, 0x7F, 0x80, 0xFE, 0xFF};
    for (uint64_t left = dice(6); left && size; left--) {
        size_t at = dice(size);
        uint64_t kind = dice(PLAIN_DAMAGES + 1);
        if (kind == PLAIN_DAMAGES) b[at] = EXTREMES[dice(sizeof EXTREMES)];
        else size = damage_plainly(b, size, at, kind);
    }
    return size;
}

/* Samples of the same area into memory of exactly their number. */
static void sample_of(Area area, uint64_t turn) {
    Sampling to = {.first = (uint32_t)dice(6), .every = (uint32_t)dice(5) + 1};
    const size_t most = samples_max(&area, &to);
    to.keyed = malloc(most ? SAMPLE * most : 1);
    to.null = malloc(most ? SAMPLE * most : 1);
    sample_keys(&area, &to);
    if (to.keyed_rows + to.null_rows > most) fail("more samples than were asked for", turn);
    if (to.key && (to.key < area.bytes || to.key + to.key_size > area.bytes + area.size)) fail("a key lies outside", turn);
    static uint8_t records[4 * BUCKETS], sizes[8 * BUCKETS];
    static uint32_t seen[BUCKETS];
    const uint64_t pairs = tally_samples(to.keyed, to.keyed_rows, (uint32_t)dice(UINT32_MAX) + 1, records, sizes, seen);
    if (to.keyed_rows < 2 && pairs) fail("pairs of one", turn);
    free(to.keyed);
    free(to.null);
}

static int32_t narrow(const uint8_t *column, size_t row) { return (int32_t)native32(column + 4 * row); }

static void put_big32(uint8_t *p, uint32_t v) {
    p[0] = (uint8_t)(v >> 24); p[1] = (uint8_t)(v >> 16); p[2] = (uint8_t)(v >> 8); p[3] = (uint8_t)v;
}

static void check_content(const Area *of, const Columns *found, int start, size_t row, uint64_t turn) {
    const int64_t at = narrow(found->narrow[start], row), size = narrow(found->narrow[start + 1], row);
    if (at < 0 || size < -1 || at + (size < 0 ? 0 : size) > (int64_t)of->size) fail("content lies outside", turn);
}

/* Reads every byte that the columns name. */
static void check(const Area *of, const Columns *found, uint64_t turn) {
    int64_t before = of->base_offset - 1;
    for (size_t row = 0; row < of->rows; row++) {
        const int64_t offset = (int64_t)native64(found->wide[OFFSET] + 8 * row);
        if (offset <= before || offset > of->base_offset + of->offsets) fail("an offset does not ascend", turn);
        before = offset;
        check_content(of, found, KEY_START, row, turn);
        check_content(of, found, VALUE_START, row, turn);
        const int32_t at = narrow(found->narrow[HEADERS_START], row), count = narrow(found->narrow[HEADERS_COUNT], row);
        if (at < 0 || (size_t)at > of->size || !after_headers(of->bytes + at, of->bytes + of->size, count)) fail("headers are lost", turn);
        if (of->has_append_time && (int64_t)native64(found->wide[TIMESTAMP] + 8 * row) != of->append_time) fail("a wrong time", turn);
    }
}

static void make(Columns *columns, size_t rows) {
    for (int i = 0; i < WIDE_COLUMNS; i++) columns->wide[i] = malloc(8 * rows + !rows);
    for (int i = 0; i < NARROW_COLUMNS; i++) columns->narrow[i] = malloc(4 * rows + !rows);
}

static void drop(Columns *columns) {
    for (int i = 0; i < WIDE_COLUMNS; i++) free(columns->wide[i]);
    for (int i = 0; i < NARROW_COLUMNS; i++) free(columns->narrow[i]);
}

/* Offsets and hashes from one row on, into memory of exactly the size that the extension has for them. */
static int64_t order_keys_of(const Area *of, const Columns *columns, size_t first, uint64_t turn) {
    const size_t rows = of->rows - first;
    uint8_t *offsets = malloc(8 * rows + !rows), *hashes = malloc(8 * rows + !rows);
    const int64_t keyed = hash_order_keys(of->bytes, (int64_t)of->size, columns, first, of->rows, offsets, hashes);
    if (keyed > (int64_t)rows) fail("more keys than rows", turn);
    free(offsets);
    free(hashes);
    return keyed;
}

/* As the extension shortens what it found, and whether that lies where it says. */
static void check_short(const Area *of, const Columns *columns, uint64_t turn) {
    Columns fewer;
    uint8_t *memory = malloc(of->rows * ROW + 1), *hashes = malloc(of->rows * 4 + 1);
    lay_out(&fewer, memory, of->rows);
    shorten(columns, &fewer, of->rows);
    check(of, &fewer, turn);
    if (!hash_keys(of->bytes, (int64_t)of->size, &fewer, 0, of->rows, hashes)) fail("a key lies outside", turn);
    if (order_keys_of(of, &fewer, 0, turn) < 0) fail("a key to order by lies outside", turn);
    for (uint64_t left = dice(4); left && of->rows; left--) memory[dice(of->rows * ROW)] = (uint8_t)dice(256);
    hash_keys(of->bytes, (int64_t)of->size, &fewer, dice(of->rows + 1), of->rows, hashes); /* whatever the columns say */
    order_keys_of(of, &fewer, dice(of->rows + 1), turn);
    free(hashes);
    free(memory);
}

/* Some batches in a row, most of them with a right checksum. */
static int one_run(uint64_t turn, uint8_t *room) {
    size_t size = dice(20);
    const size_t start = size;
    for (uint64_t left = dice(RUN_MAX + 1); left; left--) {
        const int pick = (int)dice((uint64_t)batches);
        uint8_t *batch = room + size;
        memcpy(batch, corpus[pick].bytes, corpus[pick].size);
        size_t its = dice(2) ? HEADER + damage(batch + HEADER, corpus[pick].size - HEADER) : corpus[pick].size;
        put_big32(batch + 8, (uint32_t)its - LOG_OVERHEAD);
        put_big32(batch + 4, (uint32_t)dice(20) * 500);
        if (dice(10) == 0) put_big32(batch + COUNT_AT, (uint32_t)dice(1u << 31));
        if (dice(4) == 0) its = damage(batch, its);
        else if (dice(10)) put_big32(batch + CRC_AT, crc32c(0, batch + CRC_FROM, its - CRC_FROM));
        size += its;
    }
    uint8_t *bytes = exact(room, size);
    Run run = {.bytes = bytes, .end = bytes + size, .is_checked = dice(2) == 0, .area = {.origin = bytes, .last_offset = -1}};
    const size_t rows = rows_of(&run, bytes + start), room_for = dice(10) ? rows : dice(rows + 1);
    Columns columns;
    make(&columns, room_for);
    int fault;
    const char *wrong = NULL;
    const uint8_t *behind = locate_run(&run, &columns, room_for, bytes + start, &fault, &wrong);
    if (behind < bytes + start || behind > bytes + size || (fault == ALL_RIGHT) != (behind == bytes + size)) fail("it went too far", turn);
    if ((fault == WRONG_RECORD) != (wrong != NULL)) fail("nothing is wrong", turn);
    if (run.area.rows > room_for) fail("more records than there is room for", turn);
    Area whole = {.bytes = bytes, .size = size, .offsets = INT64_MAX, .rows = run.area.rows};
    check_short(&whole, &columns, turn);
    drop(&columns);
    free(bytes);
    return fault == ALL_RIGHT;
}

static int one(uint64_t turn, uint8_t *room) {
    const int pick = (int)dice((uint64_t)batches);
    const uint8_t *header = corpus[pick].bytes;
    const size_t whole = corpus[pick].size - HEADER;
    memcpy(room, header + HEADER, whole);
    const size_t size = damage(room, whole);
    Area area = {.size = size, .count = big32(header + COUNT_AT), .base_offset = (int64_t)big64(header),
                 .offsets = (int32_t)big32(header + DELTA_AT), .base_timestamp = (int64_t)big64(header + BASE_TIMESTAMP_AT),
                 .has_append_time = dice(4) == 0, .append_time = 77};
    if (dice(6) == 0) area.count += (uint32_t)dice(3) - 1;
    if (dice(30) == 0) area.count = (uint32_t)dice(1u << 31);
    if (dice(30) == 0) area.offsets = (int64_t)dice(5);
    if (dice(30) == 0) area.base_offset = INT64_MAX - area.offsets;
    if (!has_offsets(&area) || !has_room(&area)) return 0;
    uint8_t *bytes = exact(room, size);
    Columns columns;
    area.bytes = area.origin = bytes;
    area.last_offset = -1;
    make(&columns, area.count);
    sample_of(area, turn);
    const char *wrong = locate_all(&area, &columns);
    if (area.rows > area.count) fail("more records than there are", turn);
    if (area.at > area.count) fail("a record is wrong that there is not", turn);
    if (!wrong) check_short(&area, &columns, turn);
    drop(&columns);
    free(bytes);
    return !wrong;
}

static int area_or_run(uint64_t turn, uint8_t *room) {
    if (turn % 10000 == 0) detect_processor((int)(turn / 10000 % 4));
    return turn % 2 ? one(turn, room) : one_run(turn, room);
}

int main(int count, char **words) {
    static uint8_t room[BATCH_MAX * (RUN_MAX + 1)];
    fill_tables();
    return drive(count, words, room, area_or_run);
}
