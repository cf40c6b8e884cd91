package formattest

import (
	"encoding/binary"
	"testing"

	"github.com/stokerdata/stoker/internal/npy"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/source/drivertest"
)

// Tokens returns n numbers, of which every seventh is 7, the end of a document.
func Tokens(n int) []int {
	t := make([]int, n)
	for i := range t {
		if t[i] = 8 + i*31%5000; i%7 == 6 {
			t[i] = 7
		}
	}
	return t
}

// EncodeTokens writes tokens as little-endian numbers of unit bytes.
func EncodeTokens(t []int, unit int) []byte {
	var b []byte
	for _, v := range t {
		for i := range unit {
			b = append(b, byte(v>>(8*i)))
		}
	}
	return b
}

// HeadedTokens returns tokens after llm.c's header.
func HeadedTokens(magic, version uint32, t []int, unit int) []byte {
	h := make([]byte, 1024)
	binary.LittleEndian.PutUint32(h, magic)
	binary.LittleEndian.PutUint32(h[4:], version)
	binary.LittleEndian.PutUint32(h[8:], uint32(len(t)))
	return append(h, EncodeTokens(t, unit)...)
}

// MegatronIndex returns an index of Megatron. docs are the first sequences of documents.
func MegatronIndex(code byte, unit int, lengths []int, docs []int) []byte {
	b := append([]byte("MMIDIDX\x00\x00"), 1, 0, 0, 0, 0, 0, 0, 0, code)
	b = binary.LittleEndian.AppendUint64(b, uint64(len(lengths)))
	b = binary.LittleEndian.AppendUint64(b, uint64(len(docs)))
	for _, n := range lengths {
		b = binary.LittleEndian.AppendUint32(b, uint32(n))
	}
	at := 0
	for _, n := range lengths {
		b = binary.LittleEndian.AppendUint64(b, uint64(at*unit))
		at += n
	}
	for _, d := range docs {
		b = binary.LittleEndian.AppendUint64(b, uint64(d))
	}
	return b
}

// Megatron returns a pair of Megatron's files: 40 sequences in 25 documents.
func Megatron(code byte, unit int) map[string][]byte {
	var lengths, docs []int
	total := 0
	for i := range 40 {
		lengths = append(lengths, i*5%13)
		total += i * 5 % 13
		if i < 10 || i%2 == 0 {
			docs = append(docs, i)
		}
	}
	return map[string][]byte{"c.bin": EncodeTokens(Tokens(total), unit), "c.idx": MegatronIndex(code, unit, lengths, append(docs, 40))}
}

// TokenShards writes files of tokens in three formats.
func TokenShards(t testing.TB) string {
	return drivertest.Folder(t, map[string][]byte{
		"a.bin": EncodeTokens(Tokens(100), 2), "b.bin": HeadedTokens(20240520, 1, Tokens(101), 2),
		"c.npy": append(npy.AppendHeader(nil, driver.Uint16, []int64{99}), EncodeTokens(Tokens(99), 2)...),
	})
}
