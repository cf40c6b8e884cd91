package formattest

import "encoding/binary"

// IDX returns a file with ascending elements.
func IDX(kind byte, shape ...int) []byte {
	b := []byte{0, 0, kind, byte(len(shape))}
	n := IDXSizes[kind]
	for _, side := range shape {
		b = binary.BigEndian.AppendUint32(b, uint32(side))
		n *= side
	}
	for i := range n {
		b = append(b, byte(i*5+i/256))
	}
	return b
}

// IDXLabels returns a file of class numbers below n.
func IDXLabels(count, n int) []byte {
	b := IDX(8, count)
	for i := range count {
		b[8+i] = byte(i % n)
	}
	return b
}

// IDXSizes are the sizes of elements by their code.
var IDXSizes = map[byte]int{8: 1, 9: 1, 11: 2, 12: 4, 13: 4, 14: 8}
