package ranged

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// The header of a response. Nearly all responses to reads are 200 or 206 of HTTP/1.1 with one Content-Length and no
// other body framing. They are parsed here. All others are parsed by net/http.

// maxHeader is the size limit of a header.
const maxHeader = 256 << 10

var (
	errHeader    = fmt.Errorf("the answer's headers have more than %d bytes", maxHeader)
	errMalformed = errors.New("malformed HTTP response")
)

// headerEnd returns the size of the header in b including the empty line, or 0 if the header is incomplete. The
// bytes before from have been searched already.
func headerEnd(b []byte, from int) int {
	for at := max(from-2, 0); ; {
		i := bytes.IndexByte(b[at:], '\n')
		if i < 0 {
			return 0
		}
		at += i + 1
		switch {
		case at < len(b) && b[at] == '\n':
			return at + 1
		case at+1 < len(b) && b[at] == '\r' && b[at+1] == '\n':
			return at + 2
		}
	}
}

// plainAnswer parses the usual kind of header. It returns nil for others, which may still be valid. The result
// equals that of http.ReadResponse.
func plainAnswer(header []byte) *http.Response {
	const first = "HTTP/1.1 20"
	if len(header) < len(first)+2 || string(header[:len(first)]) != first {
		return nil
	}
	resp := &http.Response{Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, ContentLength: -1, Body: http.NoBody}
	switch header[len(first)] {
	case '0':
		resp.StatusCode = http.StatusOK
	case '6':
		resp.StatusCode = http.StatusPartialContent
	default:
		return nil
	}
	text := string(header)
	line, at := lineOf(text, 0)
	if resp.Status = line[len(first)-2:]; !isText(line) || len(resp.Status) > 3 && resp.Status[3] != ' ' {
		return nil
	}
	values := make([]string, 0, strings.Count(text, "\n")-2) // usually one per name
	resp.Header = make(http.Header, cap(values))
	for {
		if line, at = lineOf(text, at); line == "" {
			break
		}
		colon := strings.IndexByte(line, ':')
		if colon < 0 || !isToken(line[:colon]) {
			return nil
		}
		name, value := http.CanonicalHeaderKey(line[:colon]), trim(line[colon+1:])
		if !isText(value) {
			return nil
		}
		switch name {
		case "Content-Length":
			n, err := strconv.ParseUint(value, 10, 63)
			if err != nil || resp.ContentLength >= 0 {
				return nil
			}
			resp.ContentLength = int64(n)
		case "Connection":
			if !strings.EqualFold(value, "keep-alive") {
				return nil
			}
		case "Transfer-Encoding", "Trailer", "Pragma": // ReadResponse treats Pragma specially
			return nil
		}
		values = append(values, value)
		if had := resp.Header[name]; had != nil {
			resp.Header[name] = append(had, value)
		} else {
			resp.Header[name] = values[len(values)-1 : len(values) : len(values)]
		}
	}
	if at != len(text) || resp.ContentLength < 0 {
		return nil
	}
	return resp
}

// lineOf returns the line of s at an offset, and the offset of the next line. A line without CR LF at its end keeps
// its last byte, so that it is not valid text.
func lineOf(s string, at int) (line string, next int) {
	n := strings.IndexByte(s[at:], '\n')
	if n < 0 {
		return s[at:], len(s)
	}
	if n > 0 && s[at+n-1] == '\r' {
		return s[at : at+n-1], at + n + 1
	}
	return s[at : at+n+1], at + n + 1
}

// trim returns s without surrounding spaces.
func trim(s string) string {
	for len(s) > 0 && (s[0] == ' ' || s[0] == '\t') {
		s = s[1:]
	}
	for len(s) > 0 && (s[len(s)-1] == ' ' || s[len(s)-1] == '\t') {
		s = s[:len(s)-1]
	}
	return s
}

// otherAnswer parses any other header. The response has no body yet.
func otherAnswer(header []byte, method string) (*http.Response, error) {
	whole := bytes.NewReader(header)
	in := bufio.NewReader(whole)
	resp, err := http.ReadResponse(in, &http.Request{Method: method})
	if err != nil {
		return nil, err
	}
	resp.Request = nil
	chunked := resp.TransferEncoding != nil
	switch {
	case whole.Len() > 0 || in.Buffered() > 0:
		return nil, errMalformed // net/http sees another end of the header
	case resp.ProtoMajor != 1, resp.StatusCode < 100, resp.StatusCode == http.StatusSwitchingProtocols:
		return nil, errMalformed
	case says(header, "Transfer-Encoding") && (!chunked || says(header, "Content-Length")):
		// A proxy could see another end of the body.
		return nil, fmt.Errorf("%w: a transfer encoding, and another length", errMalformed)
	}
	return resp, nil
}

// says reports whether a header has a line with this name.
func says(header []byte, name string) bool {
	for line := range bytes.Lines(header) {
		if n, _, ok := bytes.Cut(line, []byte(":")); ok && strings.EqualFold(string(bytes.TrimSpace(n)), name) {
			return true
		}
	}
	return false
}
