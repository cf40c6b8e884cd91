package zarrsource

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/stokerdata/stoker/internal/source/codec"
	"github.com/stokerdata/stoker/internal/source/ndarray"
	"github.com/stokerdata/stoker/source/driver"
)

// meta describes an array.
type meta struct {
	shape, chunk []int64
	elem         int64
	typ          ndarray.Type
	members      []member
	fill         []byte
	order        []int
	codecs       codec.Pipeline
	// prefix and separator form the names of chunks.
	prefix, separator string
	shard             *shard
	// why is the reason why the array cannot be read, "" if it can.
	why string
}

// member is a member of a structured type.
type member struct {
	name string
	typ  ndarray.Type
}

// shard describes the chunks in shards.
type shard struct {
	chunk      []int64
	order      []int
	codecs     codec.Pipeline
	first      bool // the index comes before the chunks
	sum        bool // the index has a checksum
	big        bool
	bigElement bool
}

// parse parses the metadata of an array. It returns nil for a group.
func parse(b []byte, version int) (*meta, error) {
	if version == 2 {
		return parse2(b)
	}
	var node struct {
		Format int    `json:"zarr_format"`
		Type   string `json:"node_type"`
	}
	if err := json.Unmarshal(b, &node); err != nil {
		return nil, fmt.Errorf("invalid Zarr metadata: %w", err)
	}
	switch {
	case node.Format != 3:
		return nil, fmt.Errorf("zarr_format is %d, expected 3 in a zarr.json", node.Format)
	case node.Type == "group":
		return nil, nil
	case node.Type != "array":
		return nil, fmt.Errorf("node_type is %.40q, expected array or group", node.Type)
	}
	return parse3(b)
}

// step is a codec with its settings.
type step struct {
	Name          string          `json:"name"`
	Configuration json.RawMessage `json:"configuration"`
}

// UnmarshalJSON also accepts a name alone.
func (s *step) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		return json.Unmarshal(b, &s.Name)
	}
	type plain step
	return json.Unmarshal(b, (*plain)(s))
}

// config parses the settings of a step.
func (s *step) config(out any) error {
	if len(s.Configuration) == 0 {
		return nil
	}
	if err := json.Unmarshal(s.Configuration, out); err != nil {
		return fmt.Errorf("invalid settings of %.40q: %w", s.Name, err)
	}
	return nil
}

// checkShape checks the shapes of the array and of its chunks.
func (m *meta) checkShape() error {
	if len(m.shape) > maxAxes {
		return fmt.Errorf("it has %d axes, the limit is %d", len(m.shape), maxAxes)
	}
	return checkChunk(m.shape, m.chunk)
}

func checkChunk(shape, chunk []int64) error {
	if len(chunk) != len(shape) {
		return fmt.Errorf("chunks of %d axes in an array of %d", len(chunk), len(shape))
	}
	for i, side := range chunk {
		if side < 1 || side > 1<<40 || shape[i] < 0 || shape[i] > 1<<50 {
			return fmt.Errorf("invalid shape %v with chunks of %v", shape, chunk)
		}
	}
	return nil
}

func parse2(b []byte) (*meta, error) {
	var d struct {
		Format     int               `json:"zarr_format"`
		Shape      []int64           `json:"shape"`
		Chunks     []int64           `json:"chunks"`
		DType      json.RawMessage   `json:"dtype"`
		Compressor json.RawMessage   `json:"compressor"`
		Filters    []json.RawMessage `json:"filters"`
		Fill       json.RawMessage   `json:"fill_value"`
		Order      string            `json:"order"`
		Separator  string            `json:"dimension_separator"`
	}
	if err := json.Unmarshal(b, &d); err != nil {
		return nil, fmt.Errorf("invalid Zarr metadata: %w", err)
	}
	if d.Format != 2 {
		return nil, fmt.Errorf("zarr_format is %d, expected 2 in a .zarray", d.Format)
	}
	m := &meta{shape: d.Shape, chunk: d.Chunks, separator: d.Separator}
	if m.separator == "" {
		m.separator = "."
	}
	if err := m.checkSeparator(); err != nil {
		return nil, err
	}
	if err := m.checkShape(); err != nil {
		return nil, err
	}
	if err := m.type2(d.DType); err != nil || m.why != "" {
		return m, err
	}
	switch d.Order {
	case "C", "":
	case "F":
		m.order = turned(len(m.shape))
	default:
		return nil, fmt.Errorf("order is %.20q, expected C or F", d.Order)
	}
	for _, raw := range append(slices.Clone(d.Filters), d.Compressor) {
		if len(raw) == 0 || string(raw) == "null" {
			continue
		}
		var c struct {
			ID      string `json:"id"`
			Element int    `json:"elementsize"`
		}
		if err := json.Unmarshal(raw, &c); err != nil {
			return nil, fmt.Errorf("invalid compressor or filter: %w", err)
		}
		if err := m.step(&m.codecs, c.ID, c.Element); err != nil || m.why != "" {
			return m, err
		}
	}
	var err error
	m.fill, err = m.fillValue(d.Fill)
	return m, err
}

func (m *meta) checkSeparator() error {
	if m.separator != "." && m.separator != "/" {
		return fmt.Errorf("the separator of chunk names is %.20q, expected . or /", m.separator)
	}
	return nil
}

// turned returns Fortran's order of axes, nil if it equals C's.
func turned(axes int) []int {
	if axes < 2 {
		return nil
	}
	out := make([]int, axes)
	for i := range out {
		out[i] = axes - 1 - i
	}
	return out
}

// step appends the decoder of a bytes-to-bytes codec.
func (m *meta) step(to *codec.Pipeline, name string, element int) error {
	var c codec.Codec
	switch strings.TrimPrefix(name, "numcodecs.") {
	case "blosc":
		c = codec.Blosc{}
	case "zstd":
		c = codec.Zstd{}
	case "gzip":
		c = codec.Gzip{}
	case "zlib":
		c = codec.Deflate{}
	case "lz4":
		c = codec.SizedLZ4{}
	case "bz2":
		c = codec.Bzip2{}
	case "crc32c":
		c = codec.CRC32C{}
	case "shuffle":
		if element == 0 {
			element = 4
		}
		if element < 1 || element > 1<<20 {
			return fmt.Errorf("shuffle has elements of %d bytes", element)
		}
		c = codec.Shuffle{Element: element}
	default:
		m.why = fmt.Sprintf("is stored with the codec %.40q, which is not read (supported: blosc, zstd, gzip, zlib, lz4, bz2, shuffle, crc32c, transpose, sharding)", name)
		return nil
	}
	*to = append(*to, c)
	return nil
}

// type2 parses a NumPy type.
func (m *meta) type2(raw json.RawMessage) error {
	var name string
	if err := json.Unmarshal(raw, &name); err == nil {
		m.typ, m.why = ndarray.NumPy(name)
		m.elem = m.typ.Size
		return m.checkElement()
	}
	var fields [][]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil {
		return fmt.Errorf("dtype: %w", err)
	}
	for _, f := range fields {
		if len(f) < 2 || len(f) > 3 || len(m.members) > 4096 {
			return errors.New("dtype has a member without a name or a type")
		}
		var e member
		var of string
		if json.Unmarshal(f[0], &e.name) != nil || json.Unmarshal(f[1], &of) != nil {
			m.why = "has a nested structured type, which is not read"
			return nil
		}
		if e.typ, m.why = ndarray.NumPy(of); m.why != "" {
			return nil
		}
		if len(f) == 3 {
			if err := json.Unmarshal(f[2], &e.typ.Dims); err != nil {
				return fmt.Errorf("dtype: %w", err)
			}
			for _, side := range e.typ.Dims {
				if side < 1 || side > 1<<30 || e.typ.Size > (1<<30)/side {
					return fmt.Errorf("dtype has a member of the shape %v", e.typ.Dims)
				}
				e.typ.Size *= side
			}
		}
		e.typ.At = m.elem
		if m.elem += e.typ.Size; m.elem > 1<<30 {
			return errors.New("dtype has more than 1 GiB")
		}
		m.members = append(m.members, e)
	}
	if len(m.members) == 0 {
		return errors.New("dtype has no members")
	}
	return nil
}

func (m *meta) checkElement() error {
	if m.why == "" && (m.elem < 1 || m.elem > 1<<30) {
		return fmt.Errorf("invalid element size of %d bytes", m.elem)
	}
	return nil
}

func parse3(b []byte) (*meta, error) {
	var d struct {
		Shape []int64         `json:"shape"`
		Type  json.RawMessage `json:"data_type"`
		Grid  step            `json:"chunk_grid"`
		Keys  step            `json:"chunk_key_encoding"`
		Fill  json.RawMessage `json:"fill_value"`
		Steps []step          `json:"codecs"`
		More  []step          `json:"storage_transformers"`
	}
	if err := json.Unmarshal(b, &d); err != nil {
		return nil, fmt.Errorf("invalid Zarr metadata: %w", err)
	}
	m := &meta{shape: d.Shape}
	var chunk struct {
		Shape json.RawMessage `json:"chunk_shape"`
	}
	if err := d.Grid.config(&chunk); err != nil {
		return nil, err
	}
	if d.Grid.Name != "regular" || json.Unmarshal(chunk.Shape, &m.chunk) != nil {
		m.why = fmt.Sprintf("has a chunk grid %.40q, which is not read (supported: regular)", d.Grid.Name)
		return m, nil
	}
	keys := struct{ Separator string }{}
	if err := d.Keys.config(&keys); err != nil {
		return nil, err
	}
	m.separator = keys.Separator
	switch d.Keys.Name {
	case "default":
		if m.separator == "" {
			m.separator = "/"
		}
		m.prefix = "c" + m.separator
	case "v2":
		if m.separator == "" {
			m.separator = "."
		}
	default:
		m.why = fmt.Sprintf("has the chunk key encoding %.40q, which is not read (supported: default, v2)", d.Keys.Name)
		return m, nil
	}
	if len(d.More) > 0 {
		m.why = fmt.Sprintf("has the storage transformer %.40q, which is not read", d.More[0].Name)
		return m, nil
	}
	if err := m.checkSeparator(); err != nil {
		return nil, err
	}
	if err := m.checkShape(); err != nil {
		return nil, err
	}
	if err := m.type3(d.Type); err != nil || m.why != "" {
		return m, err
	}
	c, err := m.chain(d.Steps, m.chunk, true)
	if err != nil || m.why != "" {
		return m, err
	}
	m.codecs, m.order, m.typ.Big = c.codecs, c.order, c.bigElement
	if m.shard != nil {
		m.typ.Big = m.shard.bigElement
	}
	m.fill, err = m.fillValue(d.Fill)
	return m, err
}

// chain parses codecs, of which one must convert the array to bytes.
func (m *meta) chain(steps []step, chunk []int64, shards bool) (*shard, error) {
	out := &shard{}
	bytes := false
	if len(steps) > codec.MaxSteps {
		return nil, fmt.Errorf("%d codecs, the limit is %d", len(steps), codec.MaxSteps)
	}
	for i := range steps {
		s := &steps[i]
		switch s.Name {
		case "transpose":
			c := struct{ Order json.RawMessage }{}
			if err := s.config(&c); err != nil {
				return nil, err
			}
			var err error
			if out.order, err = m.transpose(c.Order, out.order); err != nil {
				return nil, err
			}
		case "bytes", "endian":
			c := struct{ Endian string }{}
			if err := s.config(&c); err != nil {
				return nil, err
			}
			out.bigElement = c.Endian == "big"
			bytes = true
		case "sharding_indexed":
			if !shards || out.order != nil || i+1 != len(steps) {
				m.why = "has nested shards, or other codecs around shards, which is not read"
				return out, nil
			}
			if err := m.sharding(s, chunk); err != nil || m.why != "" {
				return out, err
			}
			bytes = true
		default:
			c := struct {
				Element int `json:"elementsize"`
			}{}
			if err := s.config(&c); err != nil {
				return nil, err
			}
			if !bytes { // for example vlen-utf8, or array-to-array filters
				m.why = fmt.Sprintf("is stored with the codec %.40q, which is not read", s.Name)
				return out, nil
			}
			if err := m.step(&out.codecs, s.Name, c.Element); err != nil || m.why != "" {
				return out, err
			}
		}
	}
	if !bytes {
		return nil, errors.New("its codecs have no bytes codec")
	}
	return out, nil
}

// transpose parses an order of axes and combines it with the order before it.
func (m *meta) transpose(raw json.RawMessage, before []int) ([]int, error) {
	var name string
	var order []int
	if json.Unmarshal(raw, &name) == nil {
		switch name {
		case "C":
			return before, nil
		case "F":
			for i := range m.shape {
				order = append(order, len(m.shape)-1-i)
			}
		}
	} else if err := json.Unmarshal(raw, &order); err != nil {
		return nil, fmt.Errorf("invalid order of transpose: %w", err)
	}
	seen := make([]bool, len(m.shape))
	if len(order) != len(seen) {
		return nil, fmt.Errorf("transpose has the order %v for %d axes", order, len(m.shape))
	}
	out := make([]int, len(order))
	same := true
	for i, k := range order {
		if k < 0 || k >= len(seen) || seen[k] {
			return nil, fmt.Errorf("transpose has the invalid order %v", order)
		}
		seen[k] = true
		if out[i] = k; before != nil {
			out[i] = before[k]
		}
		same = same && out[i] == i
	}
	if same {
		return nil, nil
	}
	return out, nil
}

// sharding parses the settings of shards.
func (m *meta) sharding(s *step, outer []int64) error {
	var c struct {
		Chunk    []int64 `json:"chunk_shape"`
		Steps    []step  `json:"codecs"`
		Index    []step  `json:"index_codecs"`
		Location string  `json:"index_location"`
	}
	if err := s.config(&c); err != nil {
		return err
	}
	if err := checkChunk(m.shape, c.Chunk); err != nil {
		return err
	}
	for i, side := range c.Chunk {
		if outer[i]%side != 0 {
			return fmt.Errorf("invalid shards of %v with chunks of %v", outer, c.Chunk)
		}
	}
	inner, err := m.chain(c.Steps, c.Chunk, false)
	if err != nil || m.why != "" {
		return err
	}
	index, err := m.chain(c.Index, nil, false)
	if err != nil || m.why != "" {
		return err
	}
	for _, c := range index.codecs {
		if _, ok := c.(codec.CRC32C); !ok || index.sum {
			m.why = fmt.Sprintf("has an index of shards with the codec %s, which is not read", c.Name())
			return nil
		}
		index.sum = true
	}
	inner.sum, inner.big, inner.chunk = index.sum, index.bigElement, c.Chunk
	switch c.Location {
	case "", "end":
	case "start":
		inner.first = true
	default:
		return fmt.Errorf("index_location is %.20q, expected start or end", c.Location)
	}
	m.shard = inner
	return nil
}

// type3 parses a type of version 3.
func (m *meta) type3(raw json.RawMessage) error {
	var t step
	if err := json.Unmarshal(raw, &t); err != nil {
		return fmt.Errorf("data_type: %w", err)
	}
	length := struct {
		Bytes int64 `json:"length_bytes"`
	}{}
	if err := t.config(&length); err != nil {
		return err
	}
	switch t.Name {
	case "fixed_length_utf32":
		m.typ = ndarray.Type{Class: ndarray.UCS4, Size: length.Bytes}
		if length.Bytes%4 != 0 {
			return fmt.Errorf("invalid size of %d bytes for UTF-32 text", length.Bytes)
		}
	case "null_terminated_bytes":
		m.typ = ndarray.Type{Class: ndarray.Text, Size: length.Bytes}
	case "raw_bytes":
		m.typ = ndarray.Type{Class: ndarray.Opaque, Size: length.Bytes}
	default:
		if n, err := strconv.ParseInt(strings.TrimPrefix(t.Name, "r"), 10, 32); err == nil && t.Name[0] == 'r' && n > 0 && n%8 == 0 {
			m.typ = ndarray.Type{Class: ndarray.Opaque, Size: n / 8}
			break
		}
		d := driver.DType(t.Name)
		if !slices.Contains(driver.DTypes, d) {
			m.why = fmt.Sprintf("has the type %.40q, which is not read", t.Name)
			return nil
		}
		m.typ = ndarray.Type{DType: d, Size: int64(d.Size())}
	}
	m.elem = m.typ.Size
	return m.checkElement()
}

// fillValue encodes an element with the fill value. It returns nil for zeros.
func (m *meta) fillValue(raw json.RawMessage) ([]byte, error) {
	if len(raw) == 0 || string(raw) == "null" || string(raw) == "0" {
		return nil, nil
	}
	out := make([]byte, m.elem)
	var text string
	isText := json.Unmarshal(raw, &text) == nil
	if m.members != nil || m.typ.Class == ndarray.Text || m.typ.Class == ndarray.Opaque {
		b, err := base64.StdEncoding.DecodeString(text)
		if !isText || err != nil || len(b) > len(out) {
			if isText && text == "" {
				return nil, nil
			}
			return nil, fmt.Errorf("invalid fill value %.40s for elements of %d bytes", raw, m.elem)
		}
		copy(out, b)
		return out, nil
	}
	if m.typ.Class == ndarray.UCS4 {
		at := 0
		for _, c := range text {
			if at+4 > len(out) {
				return nil, fmt.Errorf("invalid fill value %.40s for elements of %d bytes", raw, m.elem)
			}
			binary.LittleEndian.PutUint32(out[at:], uint32(c))
			at += 4
		}
		if m.typ.Big {
			swap(out, 4)
		}
		return out, nil
	}
	t := m.typ.DType.Type()
	size := t.Size()
	bad := fmt.Errorf("invalid fill value %.40s for elements of %s", raw, m.typ.DType)
	put := func(bits uint64) { copy(out, binary.LittleEndian.AppendUint64(nil, bits)[:size]) }
	switch {
	case string(raw) == "true":
		out[0] = 1
	case string(raw) == "false":
		return nil, nil
	case isText && strings.HasPrefix(text, "0x"):
		n, err := strconv.ParseUint(text[2:], 16, 8*size)
		if err != nil {
			return nil, bad
		}
		put(n)
	case t.Floating():
		f := math.NaN()
		switch text {
		case "NaN":
		case "Infinity":
			f = math.Inf(1)
		case "-Infinity":
			f = math.Inf(-1)
		default:
			if err := json.Unmarshal(raw, &f); err != nil {
				return nil, bad
			}
		}
		copy(out, t.Append(nil, f))
	default:
		if n, err := strconv.ParseInt(string(raw), 10, 64); err == nil {
			put(uint64(n))
		} else if n, err := strconv.ParseUint(string(raw), 10, 64); err == nil {
			put(n)
		} else {
			return nil, bad
		}
	}
	if m.typ.Big {
		swap(out, size)
	}
	return out, nil
}

// swap reverses the bytes of each element.
func swap(b []byte, size int) {
	for ; len(b) >= size; b = b[size:] {
		slices.Reverse(b[:size])
	}
}
