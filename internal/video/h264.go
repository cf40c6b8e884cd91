package video

// Clean reports whether decoding can start at a packet as if there were nothing before it. It is false for an H.264
// key frame that is not an IDR picture. Later frames may refer to frames before it, and a decoder skips them.
func (s *Stream) Clean(packet []byte) bool {
	if s.Codec != H264 {
		return true
	}
	if len(s.Config) < 5 {
		return false
	}
	// The packet is a sequence of NAL units, each preceded by its length.
	n := int(s.Config[4]&3) + 1
	for len(packet) > n {
		size := 0
		for _, b := range packet[:n] {
			size = size<<8 | int(b)
		}
		if packet = packet[n:]; size < 1 || size > len(packet) {
			return false
		}
		const idr = 5
		if packet[0]&31 == idr {
			return true
		}
		packet = packet[size:]
	}
	return false
}
