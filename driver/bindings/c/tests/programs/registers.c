/* Registers by name, as a register map describes them. */
#include "check.h"

static const char map_of_card[] = "schema_version: 1\n"
                                  "name: simulated card\n"
                                  "enums:\n"
                                  "  - name: Mode\n"
                                  "    variants: [{name: simple, value: 0}, {name: scatter_gather, value: 1}]\n"
                                  "blocks:\n"
                                  "  - name: copier\n"
                                  "    offset: 0x1000\n"
                                  "    size: 0x1000\n"
                                  "    registers:\n"
                                  "      - name: control\n"
                                  "        offset: 0x00\n"
                                  "        reset: 0x00010002\n"
                                  "        fields:\n"
                                  "          - {name: mode, bits: 3, enum: Mode}\n"
                                  "          - {name: threshold, bits: 23:16}\n"
                                  "      - {name: status, offset: 0x04, access: ro}\n";

int main(void)
{
    fpga_card card;
    fpga_map map, none;
    fpga_map_entry entry;
    char text[64];
    size_t count, needed;
    uint32_t value;
    DO(fpga_open("mock", &card));
    EXPECT(fpga_map_load("no such file.yaml", &none), FPGA_ERROR_ARGUMENT);
    HOLDS(none.value == 0 && strstr(fpga_last_error()->message, "no such file.yaml") != NULL);
    EXPECT(fpga_map_parse("schema_version: 1\nname: x\nblocs: []\n", "x.yaml", &none), FPGA_ERROR_ARGUMENT);
    HOLDS(strstr(fpga_last_error()->message, "x.yaml:3") != NULL);
    EXPECT(fpga_map_parse(NULL, NULL, &none), FPGA_ERROR_ARGUMENT);
    DO(fpga_map_parse(map_of_card, NULL, &map));

    DO(fpga_map_read(map, card, "copier.control", &value));
    HOLDS(value == 0x10002);
    DO(fpga_map_read(map, card, "copier.control.threshold", &value));
    HOLDS(value == 1);
    DO(fpga_map_write(map, card, "copier.control.threshold", 5));
    DO(fpga_map_set(map, card, "COPIER.control.mode", "scatter_gather"));
    DO(fpga_map_read(map, card, "copier.control.mode", &value));
    HOLDS(value == 1);
    DO(fpga_read32(card, FPGA_BAR_USER, 0x1000, &value));
    HOLDS((value >> 16 & 0xff) == 5);
    EXPECT(fpga_map_write(map, card, "copier.control.threshold", 256), FPGA_ERROR_RANGE);
    EXPECT(fpga_map_write(map, card, "copier.status", 1), FPGA_ERROR_UNSUPPORTED);
    EXPECT(fpga_map_set(map, card, "copier.control.mode", "fast"), FPGA_ERROR_ARGUMENT);
    EXPECT(fpga_map_read(map, card, "copier.contrl", &value), FPGA_ERROR_ARGUMENT);
    HOLDS(value == UINT32_MAX && strstr(fpga_last_error()->message, "copier.control") != NULL);

    DO(fpga_map_value_text(map, "copier.control.mode", 1, text, sizeof text, &needed));
    HOLDS(strcmp(text, "scatter_gather") == 0 && needed == 14);
    DO(fpga_map_value_text(map, "copier.control.mode", 1, text, 8, NULL));
    HOLDS(strcmp(text, "scatter") == 0);
    DO(fpga_map_value_text(map, "copier.control.threshold", 18, text, sizeof text, NULL));
    HOLDS(strcmp(text, "0x12") == 0);
    DO(fpga_map_value_number(map, "copier.control.mode", "simple", &value));
    HOLDS(value == 0);
    DO(fpga_map_get_value(map, "copier.control.mode", 1, text, sizeof text, &value));
    HOLDS(value == 1 && strcmp(text, "scatter_gather") == 0);
    EXPECT(fpga_map_get_value(map, "copier.control.mode", 2, text, sizeof text, &value), FPGA_ERROR_RANGE);

    DO(fpga_map_count(map, &count));
    HOLDS(count == 4);
    DO(fpga_map_get_entry(map, 2, text, sizeof text, &entry, sizeof entry));
    HOLDS(strcmp(text, "copier.control.threshold") == 0 && entry.offset == 0x1000 && entry.first_bit == 16 && entry.bits == 8);
    HOLDS(entry.is_field == 1 && entry.has_reset == 1 && entry.reset == 1 && entry.values == 0);
    HOLDS(entry.access == (FPGA_ACCESS_READ | FPGA_ACCESS_WRITE));
    DO(fpga_map_get_entry(map, 3, text, sizeof text, &entry, sizeof entry));
    HOLDS(strcmp(text, "copier.status") == 0 && entry.bits == 32 && entry.access == FPGA_ACCESS_READ && entry.has_reset == 0);
    EXPECT(fpga_map_get_entry(map, 4, text, sizeof text, &entry, sizeof entry), FPGA_ERROR_RANGE);
    DO(fpga_map_close(map));
    EXPECT(fpga_map_close(map), FPGA_ERROR_HANDLE);
    EXPECT(fpga_map_read(map, card, "copier.control", &value), FPGA_ERROR_HANDLE);
    DO(fpga_close(card));
    puts("registers have names");
    return 0;
}
