package bucket

import (
	"errors"
	"net/http"
	"strings"
)

// InfoOf describes an object by the headers of an answer, for servers whose versions are
// entity tags.
func InfoOf(key string, size int64, h http.Header) (Info, error) {
	if size < 0 {
		return Info{}, errors.New("the server does not say how large it is")
	}
	i := Info{Key: key, Size: size, Version: Quoted(h.Get("ETag"))}
	// That the server does not know a time is no failure.
	i.ModTime, _ = http.ParseTime(h.Get("Last-Modified"))
	i.Now, _ = http.ParseTime(h.Get("Date"))
	return i, nil
}

// Quoted is an entity tag as headers have it.
func Quoted(tag string) string {
	if tag == "" || strings.HasPrefix(tag, `"`) || strings.HasPrefix(tag, "W/") {
		return tag
	}
	return `"` + tag + `"`
}
