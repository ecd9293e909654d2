/* The filter kernel under sanitizers (harness.h).
 *
 * Batches are damaged at random, most are given a right size and checksum again, and taken apart by random cuts. Every
 * buffer has its exact size, so that an access one byte outside ends the run. What comes out must be batches again, with
 * the records that the parts say, and none may be lost when every slot was wanted. */
#define SLICING_CORE
#include "../../proxy/kafka_share_proxy/views/kernel/_slicing.c"
#include "harness.h"

enum { RANGES_MAX = 9, KEYS_MAX = 4 };

static const uint32_t EXTREMES[] = {0, 1, 2, 0x7F, 0x80, 0xFF, 0x7FFF, 0x7FFFFFFF, 0x80000000u, 0xFFFFFFFFu, 0xFFFFFFFEu};

static size_t damage(uint8_t *b, size_t size) {
    for (uint64_t left = dice(6); left && size; left--) {
        size_t at = dice(3) ? dice(size) : dice(size < 90 ? size : 90);
        uint64_t kind = dice(PLAIN_DAMAGES + 3);
        switch (kind) {
        case PLAIN_DAMAGES: b[at] = (uint8_t)EXTREMES[dice(11)]; break;
        case PLAIN_DAMAGES + 1: if (at + 4 <= size) put_big32(b + at, EXTREMES[dice(11)]); break;
        case PLAIN_DAMAGES + 2: if (size >= HEADER) put_big32(b + COUNT_AT, big32(b + COUNT_AT) + (uint32_t)dice(3) - 1); break;
        default: size = damage_plainly(b, size, at, kind);
        }
    }
    if (size >= HEADER && dice(20)) put_big32(b + 8, (uint32_t)(size - LOG_OVERHEAD));
    if (size >= HEADER && dice(20)) put_big32(b + CRC_AT, crc32c(0, b + CRC_FROM, size - CRC_FROM));
    return size;
}

/* Two pieces laid together have the checksum of the whole, as the tables have it. */
static void check_sums(const uint8_t *b, size_t size, uint64_t turn) {
    size_t first = dice(size + 1);
    uint32_t sum = crc32c_combine(crc32c(0, b, first), crc32c(0, b + first, size - first), size - first);
    if (sum != ~crc_by_table(~0u, b, size)) fail("a checksum is wrong", turn);
}

/* A part is a batch that one cut of one slot keeps whole. */
static void check_part(const uint8_t *bytes, const Part *part, const Job *source, uint64_t turn) {
    static const uint32_t only[2] = {0, 1};
    Cut all = {.rule = EVEN, .slots = 1};
    Part found[2] = {{.last = -1}, {.last = -1}};
    Job job = {.batch = bytes, .batch_size = HEADER + part->size, .cut = &all, .part_of = only, .parts = 1, .part = found};
    if (read_header(&job)) fail("a part has no header", turn);
    if (job.base_offset != source->base_offset || job.delta_max != source->delta_max) fail("a part has other offsets", turn);
    job.notes = malloc(((size_t)job.count + 1) * sizeof(Note));
    if (scan(&job) || fill(&job)) fail("a part is no batch", turn);
    if (found[0].count != part->count || found[0].last != part->last || found[0].size != part->size) fail("a part says other things", turn);
    free(job.notes);
}

static int take_apart(Job *job, int is_complete, uint64_t turn) {
    if (read_header(job)) return 0;
    uint64_t total = 0, bytes = 0;
    job->part = calloc(job->parts + 1, sizeof(Part));
    for (uint32_t i = 0; i <= job->parts; i++) job->part[i].last = -1;
    job->notes = malloc(((size_t)job->count + 1) * sizeof(Note));
    int walked = !scan(job);
    for (uint32_t i = 0; walked && i < job->parts; i++) {
        total += job->part[i].count;
        bytes += job->part[i].size;
        if (job->part[i].count && job->part[i].count < job->count) job->part[i].out = malloc(HEADER + job->part[i].size);
    }
    int good = walked && !fill(job);
    if (good && total != job->kept) fail("notes and parts differ", turn);
    if (good && is_complete && (total != job->count || bytes != job->body_size)) fail("a record is lost", turn);
    for (uint32_t i = 0; i < job->parts; i++) {
        if (good && job->part[i].out) check_part(job->part[i].out, &job->part[i], job, turn);
        free(job->part[i].out);
    }
    free(job->part);
    free(job->notes);
    return good;
}

static int one(uint64_t turn, uint8_t *room) {
    int pick = (int)dice((uint64_t)batches);
    memcpy(room, corpus[pick].bytes, corpus[pick].size);
    size_t size = damage(room, corpus[pick].size);
    uint32_t starts[RANGES_MAX], targets[RANGES_MAX], index[KEYS_MAX * 3], part_of[SLOTS_MAX + 1];
    static const uint32_t SLOTS[] = {1, 2, 3, 8, 64, 1024};
    Cut cut = {.rule = (int)dice(3), .slots = SLOTS[dice(6)], .null_keys = (int)dice(3)};
    cut.ranges = 1 + dice(RANGES_MAX);
    for (size_t i = 0; i < cut.ranges; i++) {
        starts[i] = i ? starts[i - 1] + 1 + (uint32_t)dice(0x1FFFFFFF) : 0;
        targets[i] = dice(4) ? (uint32_t)dice(cut.slots) : 0xFFFFFFFFu;
    }
    cut.keys = dice(2) ? 0 : dice(KEYS_MAX + 1);
    cut.key_bytes_size = 16;
    for (size_t i = 0; i < cut.keys; i++) {
        index[3 * i] = (uint32_t)(i << 30);
        index[3 * i + 2] = (uint32_t)dice(17);
        index[3 * i + 1] = (uint32_t)dice(17 - index[3 * i + 2]);
    }
    uint8_t key_bytes[16] = {0};
    cut.starts = exact((uint8_t *)starts, 4 * cut.ranges);
    cut.targets = exact((uint8_t *)targets, 4 * cut.ranges);
    cut.key_index = exact((uint8_t *)index, 12 * cut.keys);
    cut.key_bytes = exact(key_bytes, sizeof key_bytes);
    if (check_cut(&cut)) fail("a right cut is refused", turn);
    int every = dice(2) == 0;
    uint32_t parts = 0;
    for (uint32_t slot = 0; slot < cut.slots; slot++) part_of[slot] = every || dice(2) ? parts++ : SLOTS_MAX;
    for (uint32_t slot = 0; slot <= cut.slots; slot++)
        if (slot == cut.slots || part_of[slot] == SLOTS_MAX) part_of[slot] = parts;
    Job job = {.cut = &cut, .part_of = part_of, .parts = parts, .from_offset = dice(3) ? 0 : (int64_t)dice(3000)};
    uint8_t *batch = exact(room, size), *body = NULL;
    if (dice(8) == 0) check_sums(batch, size, turn);
    job.batch = batch;
    job.batch_size = size;
    if (dice(4) == 0 && size > HEADER) { /* as if it had been compressed */
        job.body = body = exact(room + HEADER, size - HEADER);
        job.body_size = size - HEADER;
    }
    int good = take_apart(&job, every && cut.rule != RANGES && job.from_offset == 0, turn);
    free(batch); free(body);
    free((void *)cut.starts); free((void *)cut.targets); free((void *)cut.key_index); free((void *)cut.key_bytes);
    return good;
}

static int one_by_any_path(uint64_t turn, uint8_t *room) {
    if (turn % 10000 == 0) detect_processor(turn % 80000 < 50000 ? ALL : (int)(turn % 80000 / 10000 - 5));
    pieces_from = dice(2) ? 1 : 512;
    return one(turn, room);
}

int main(int count, char **words) {
    static uint8_t room[BATCH_MAX * 2];
    fill_tables();
    return drive(count, words, room, one_by_any_path);
}
