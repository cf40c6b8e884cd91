package ranged

import (
	"net/http"
	"net/url"
	"strings"
)

// These functions write requests without a body. Requests that are not plain ASCII, or need http.Transport's
// handling, are left to net/http, which also reports errors.

// appendURL appends a request for a URL and reports whether it can. The URL must begin with origin. host is the
// host in it.
func appendURL(out []byte, method, at, origin, host string, of, more http.Header) ([]byte, bool) {
	uri, ok := strings.CutPrefix(at, origin)
	if !ok || !isPath(uri) {
		return out, false
	}
	agent := more["User-Agent"]
	if agent == nil {
		agent = of["User-Agent"]
	}
	if agent != nil && (len(agent) == 0 || agent[0] == "") {
		return out, false // an empty value needs net/http's handling
	}
	out = appendLine(out, method, uri, host)
	if out, ok = appendFields(out, of, more); !ok {
		return out, false
	}
	if out, ok = appendFields(out, more, nil); !ok {
		return out, false
	}
	if agent == nil {
		out = append(out, "User-Agent: "+userAgent+"\r\n"...)
	}
	return append(out, "\r\n"...), true
}

// appendRequest appends a request of net/http and reports whether it can.
func appendRequest(out []byte, req *http.Request) ([]byte, bool) {
	at := req.URL.RequestURI()
	if req.Method != http.MethodGet && req.Method != http.MethodHead || !isPath(at) {
		return out, false
	}
	if req.Body != nil || req.ContentLength != 0 || req.TransferEncoding != nil || req.Trailer != nil || req.Close || req.Host != "" && req.Host != req.URL.Host || req.URL.Opaque != "" || req.URL.User != nil {
		return out, false
	}
	out, ok := appendFields(appendLine(out, req.Method, at, req.URL.Host), req.Header, nil)
	return append(out, "\r\n"...), ok
}

func appendLine(out []byte, method, uri, host string) []byte {
	out = append(out, method...)
	out = append(out, ' ')
	out = append(out, uri...)
	out = append(out, " HTTP/1.1\r\nHost: "...)
	out = append(out, host...)
	return append(out, "\r\n"...)
}

// appendFields appends headers, except those that others overrides.
func appendFields(out []byte, of, others http.Header) ([]byte, bool) {
	for name, values := range of {
		switch http.CanonicalHeaderKey(name) {
		case "Host", "Content-Length", "Transfer-Encoding", "Trailer", "Connection", "Upgrade", "Expect", "Te":
			return out, false
		}
		if others[name] != nil {
			continue
		}
		for _, v := range values {
			if !isToken(name) || !isText(v) {
				return out, false
			}
			out = append(out, name...)
			out = append(out, ": "...)
			out = append(out, trim(v)...)
			out = append(out, "\r\n"...)
		}
	}
	return out, true
}

// isPath reports whether s is a path, with or without a query, that can be sent unchanged.
func isPath(s string) bool {
	for i := range len(s) {
		if c := s[i]; c == '%' {
			if i+2 >= len(s) || !isHex(s[i+1]) || !isHex(s[i+2]) {
				return false
			}
		} else if !tokens[c] && strings.IndexByte("/?:@,;=()[]", c) < 0 || c == '^' || c == '`' || c == '|' || c == '#' {
			return false
		}
	}
	return s != "" && s[0] == '/'
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

// plainHost reports whether the host of a URL can be sent unchanged.
func plainHost(u *url.URL) bool {
	for i := range len(u.Host) {
		if c := u.Host[i]; !tokens[c] && c != ':' && c != '[' && c != ']' || c == '%' {
			return false
		}
	}
	return u.Host != "" && u.Host[len(u.Host)-1] != ':'
}

// isText reports whether s is a valid header value: it has no control characters.
func isText(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

// isToken reports whether s is a valid header name.
func isToken(s string) bool {
	for i := range len(s) {
		if !tokens[s[i]] {
			return false
		}
	}
	return s != ""
}

// tokens are the bytes that are valid in names.
var tokens = func() (of [256]bool) {
	for _, c := range []byte("!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz") {
		of[c] = true
	}
	return of
}()
