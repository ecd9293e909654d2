/* Made by `python -m kafka_share_proxy.forwarding.walk.c_layouts` from schemas/. Do not edit. */

#ifndef KSP_LAYOUTS_H
#define KSP_LAYOUTS_H

#define REQUEST_HEAD 12 /* size, API key, version, correlation id */
#define REQUEST_MIN 8
#define CLIENT_ID 14 /* start of its bytes, after its length */
#define RESPONSE_HEAD 8 /* size, correlation id */
#define RESPONSE_MIN 4
#define UUID 16
#define MATCH_CALLED 0
#define MATCH_ACKS 1
#define MATCH_WORDS 2
#define MATCH_IDS 3
#define MATCH_REMEMBERED 4
#define MATCH_TOPIC 5
#define MATCH_GROUPS 6
#define REMEMBERED_MAX 1024 /* bytes of a request after its correlation id */
#define FETCH_PARTITION 33 /* of one partition of a Fetch by ids, its empty tag section included */
#define AFTER_ACKS 4 /* from the acks of a Produce to its topics: the time-out */
#define PRODUCE_MIN 10 /* first version whose response may have addresses, in a tag */
#define PRODUCE_MAX 13 /* last version whose layout is known */
#define PRODUCED_IDS_SINCE 13 /* first version that names topics by id */
#define PRODUCED_PARTITION 33 /* with no record errors, no message and no tags */
#define PRODUCED_ERRORS 30 /* start of the record errors */
#define PRODUCED_NOTHING "\1\0\0" /* their bytes if there are none */
#define PRODUCED_NOTHING_BYTES 3
#define PRODUCED_END 5 /* after the topics: throttle time, no tags */

#endif
