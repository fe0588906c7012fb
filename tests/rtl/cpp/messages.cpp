// Driver of `ni_message_receive` in `messages_bench`: that of `ni_receive`, with the answers of messages.
#define ANSWER_BYTES 40
#include "receive.cpp"
