package video

// Clean says whether decoding begins with a packet as if there were nothing before it. An
// H.264 key frame that is no IDR picture is none: frames behind it may speak of such as came
// before, which a decoder passes over.
func (s *Stream) Clean(packet []byte) bool {
	if s.Codec != H264 {
		return true
	}
	if len(s.Config) < 5 {
		return false
	}
	// The packet is units of a kind, each behind its length.
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
