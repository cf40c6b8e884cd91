package transform

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"strings"

	"github.com/stokerdata/stoker/internal/cdec"
	"github.com/stokerdata/stoker/internal/item"
)

// SoftSuffix is the suffix of the array of soft labels, after the name of the labels.
const SoftSuffix = "_soft"

// maxClasses bounds the length of a soft label.
const maxClasses = 1 << 20

// softener is a BatchOp with soft labels.
type softener interface {
	BatchOp
	// skip writes the soft labels of a batch that stays unchanged.
	skip(b *Batch) error
}

// mixer is the shared part of MixUp and CutMix: each record is mixed with the one before it, the first with the last,
// and so are their labels.
type mixer struct {
	gather        // what belongs to the images, of records with boxes
	alpha         float64
	images        []string
	labels, soft  string
	classes       int
	fresh         bool // the soft labels are not there yet
	width, height int  // of the images, 0 when they differ
}

// mixParams are the parameters of MixUp and CutMix.
func mixParams(alpha string) []Param {
	return []Param{
		{Name: "alpha", Type: Float, Default: 1.0, Range: aboveUpTo(0, 1e6), Help: alpha},
		{Name: "num_classes", Type: Int, Optional: true, Range: between(1, maxClasses), Help: "number of classes; None is that of the source"},
		{Name: "labels", Type: Text, Optional: true, Help: "name of the labels, if there are several"},
		imageNames,
	}
}

var imageNames = Param{Name: "images", Type: Names, Optional: true, Help: "names of the images to mix; None is all images"}

func buildMixer(a *Args, in BatchInfo) (mixer, []item.Array, error) {
	m := mixer{alpha: a.Float("alpha")}
	if err := m.findImages(a, in); err != nil {
		return m, nil, err
	}
	var err error
	if m.gather, err = newGather(in, m.images, 2); err != nil {
		return m, nil, err
	}
	if len(m.groups) > 0 && !hasLabels(in) && !a.Has("labels") {
		return m, nil, nil // the labels are those of the boxes
	}
	if err := m.findLabels(a, in); err != nil {
		return m, nil, err
	}
	for _, arr := range in.Arrays {
		if arr.Name == m.soft {
			if arr.DType != item.F32 || len(arr.Shape) != 1 || arr.Shape[0] != m.classes {
				return m, nil, fmt.Errorf("the array %q of the batch does not hold soft labels of %d classes", m.soft, m.classes)
			}
			return m, nil, nil
		}
	}
	m.fresh = true
	return m, []item.Array{{Name: m.soft, DType: item.F32, Shape: []int{m.classes}}}, nil
}

func (m *mixer) findImages(a *Args, in BatchInfo) error {
	wanted := a.value("images").names
	var there []string
	first := true
	for _, arr := range in.Arrays {
		// Arrays are mixed when they are asked for.
		if len(arr.Shape) != 3 || arr.Ragged || arr.Kind != "" && arr.Kind != "image" && !contains(wanted, arr.Name) {
			continue
		}
		there = append(there, arr.Name)
		if wanted != nil && !contains(wanted, arr.Name) {
			continue
		}
		m.images = append(m.images, arr.Name)
		h, w := imageSides(arr.Shape)
		if first {
			m.width, m.height = w, h
		} else if w != m.width || h != m.height {
			m.width, m.height = 0, 0
		}
		first = false
	}
	for _, name := range wanted {
		if !contains(there, name) {
			return fmt.Errorf("the batch has no image %q%s", clip(name), DidYouMean(name, there))
		}
	}
	if len(m.images) == 0 {
		return fmt.Errorf("the batch has no images")
	}
	return nil
}

// channelsLast reports whether a row of an image is NHWC. It has 1 to 4 channels, which are last unless that cannot be,
// or 2 or 4 are more likely a side.
func channelsLast(shape []int) bool {
	return shape[2] == 1 || shape[2] == 3 || shape[2] <= item.MaxChannels && shape[0] > item.MaxChannels
}

func imageSides(shape []int) (h, w int) {
	if channelsLast(shape) {
		return shape[0], shape[1]
	}
	return shape[1], shape[2]
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

// stateLabel returns the setting to write if an array of whole numbers, name or else the only one, is the labels.
func stateLabel(name string, in BatchInfo) string {
	var numbers []string
	for _, arr := range in.Arrays {
		if _, ok := in.Classes[arr.Name]; !ok && arr.DType == item.I64 && arr.Name != "index" && len(arr.Shape) == 0 && (name == "" || arr.Name == name) {
			numbers = append(numbers, arr.Name)
		}
	}
	if len(numbers) != 1 {
		return ""
	}
	return fmt.Sprintf("; if %[1]q has class numbers, state it with .kinds({%[1]q: \"label\"}) of the dataset", numbers[0])
}

func (m *mixer) findLabels(a *Args, in BatchInfo) error {
	var there []string
	for _, arr := range in.Arrays {
		if _, ok := in.Classes[arr.Name]; ok && arr.DType == item.I64 {
			there = append(there, arr.Name)
		}
	}
	m.labels = a.Word("labels")
	switch {
	case m.labels != "":
		if !contains(there, m.labels) {
			if hint := stateLabel(m.labels, in); hint != "" {
				return fmt.Errorf("%q is a number and not a label%s", clip(m.labels), hint)
			}
			return fmt.Errorf("the batch has no labels %q%s", clip(m.labels), DidYouMean(m.labels, there))
		}
	case len(there) == 1:
		m.labels = there[0]
	case len(there) == 0:
		return fmt.Errorf("the batch has no labels to mix%s", stateLabel("", in))
	default:
		return fmt.Errorf("the batch has several labels; say which with labels=, one of %s", strings.Join(there, ", "))
	}
	m.soft = m.labels + SoftSuffix
	known := in.Classes[m.labels]
	if m.classes = known; a.Has("num_classes") {
		m.classes = a.Int("num_classes")
	}
	switch {
	case m.classes == 0 && !a.Has("num_classes"):
		return fmt.Errorf("the source does not know the number of classes of %q; give num_classes", m.labels)
	case m.classes < max(known, 1) || m.classes > maxClasses:
		a.fail("num_classes", "must be from %d to %d, not %d", max(known, 1), maxClasses, m.classes)
	}
	return nil
}

// mixLabels writes the soft labels: lam of a record's own, the rest of the one
// before it.
func (m *mixer) mixLabels(b *Batch, lam float64) error {
	if m.soft == "" {
		return nil
	}
	_, soft := b.Array(m.soft)
	if !m.fresh {
		return mixRows(item.F32, soft, m.classes*4, b.Rows, lam)
	}
	_, labels := b.Array(m.labels)
	if len(soft) < b.Rows*m.classes*4 || len(labels) < b.Rows*8 {
		return fmt.Errorf("mixing labels: the batch has no room for %q", m.soft)
	}
	clear(soft)
	label := func(i int) (int, error) {
		v := int64(binary.LittleEndian.Uint64(labels[i*8:]))
		if v < 0 || v >= int64(m.classes) {
			return 0, fmt.Errorf("%s: record %d of the batch has class %d, there are %d classes (num_classes)", m.labels, i, v, m.classes)
		}
		return int(v), nil
	}
	add := func(row, class int, w float64) {
		at := soft[(row*m.classes+class)*4:]
		old := math.Float32frombits(binary.LittleEndian.Uint32(at))
		binary.LittleEndian.PutUint32(at, math.Float32bits(old+float32(w)))
	}
	if b.Rows == 0 {
		return nil
	}
	prev, err := label(b.Rows - 1)
	if err != nil {
		return err
	}
	for i := range b.Rows {
		own, err := label(i)
		if err != nil {
			return err
		}
		if own == prev {
			add(i, own, 1)
		} else {
			add(i, own, lam)
			add(i, prev, 1-lam)
		}
		prev = own
	}
	return nil
}

func (m *mixer) skip(b *Batch) error {
	if !m.fresh || m.soft == "" {
		return nil
	}
	return m.mixLabels(b, 1)
}

// chunk is the number of bytes of a row that are mixed per step, so that the needed part of the last row fits the
// stack.
const chunk = 8 << 10

// mixRows mixes each row with the one before it, the first with the last.
func mixRows(dtype item.DType, data []byte, rowBytes, rows int, lam float64) error {
	var last [chunk]byte
	for lo := 0; lo < rowBytes; lo += chunk {
		n := min(chunk, rowBytes-lo)
		at := func(i int) []byte { return data[i*rowBytes+lo:][:n] }
		copy(last[:n], at(rows-1))
		for i := rows - 1; i > 0; i-- {
			if err := cdec.Mix(dtype, at(i), at(i), at(i-1), lam); err != nil {
				return err
			}
		}
		if err := cdec.Mix(dtype, at(0), at(0), last[:n], lam); err != nil {
			return err
		}
	}
	return nil
}

// rollSpan copies bytes [lo, hi) of each row from the row before it, into the
// first from the last.
func rollSpan(data []byte, rowBytes, rows, lo, hi int) {
	var last [chunk]byte
	for ; lo < hi; lo += chunk {
		n := min(chunk, hi-lo)
		at := func(i int) []byte { return data[i*rowBytes+lo:][:n] }
		copy(last[:n], at(rows-1))
		for i := rows - 1; i > 0; i-- {
			copy(at(i), at(i-1))
		}
		copy(at(0), last[:n])
	}
}

// mixUp is torchvision's MixUp.
type mixUp struct{ mixer }

var mixUpSpec = Spec{
	Name: "MixUp", Doc: "Mix each image and label of a batch with the one before it (MixUp, arXiv:1710.09412).",
	More:   "It comes last in a list, and adds soft labels such as `label_soft`. Shuffle, so that neighbours differ. If images have boxes, the mixed image has the boxes of both.",
	Params: mixParams("parameter of the Beta distribution that the fraction of an image is drawn from, once per batch"), Keyword: true,
	Kinds: []string{"batch"}, Returns: "Same images; soft labels are float32 of [classes].", Example: "T.MixUp(alpha=0.2)", batch: buildMixUp,
}

func buildMixUp(a *Args, in BatchInfo) (BatchOp, []item.Array, error) {
	m, add, err := buildMixer(a, in)
	for _, arr := range in.Arrays {
		if err == nil && contains(m.images, arr.Name) && !mixable(arr.DType) {
			err = fmt.Errorf("takes images of uint8, float16, bfloat16 or float32, but %q is %s; put ToDtype(\"float32\", scale=True) into its operations, or say which are to be mixed with images=", arr.Name, arr.DType)
		}
	}
	return &mixUp{m}, add, err
}

// mixable reports whether elements can be added up: cdec.Mix takes them.
func mixable(t item.DType) bool {
	return t == item.U8 || t == item.F16 || t == item.BF16 || t == item.F32
}

// ApplyBatch makes it a BatchOp.
func (op *mixUp) ApplyBatch(r *Rand, b *Batch) error {
	if b.Rows == 0 {
		return nil
	}
	return op.apply(b, betaSample(r, op.alpha))
}

func (op *mixUp) apply(b *Batch, lam float64) error {
	for _, name := range op.images {
		arr, data := b.Array(name)
		if arr == nil {
			return fmt.Errorf("MixUp: the batch has no image %q", name)
		}
		if err := mixRows(arr.DType, data, int(arr.RowBytes), b.Rows, lam); err != nil {
			return err
		}
	}
	// Boxes of both images are in the mixed one, its own first.
	err := op.gather.apply(b, func(row int, take func(from int, s shift)) {
		take(row, shift{})
		take((row+b.Rows-1)%b.Rows, shift{})
	})
	if err != nil {
		return err
	}
	return op.mixLabels(b, lam)
}

// cutMix is torchvision's CutMix.
type cutMix struct{ mixer }

var cutMixSpec = Spec{
	Name: "CutMix", Doc: "Paste a random box of the image before into each image of a batch (arXiv:1905.04899).",
	More:   "It comes last in a list. Labels are mixed by area, as MixUp does. The images must have one size.",
	Params: mixParams("parameter of the Beta distribution that the kept fraction is drawn from"), Keyword: true,
	Kinds: []string{"batch"}, Returns: "Same images; soft labels are float32 of [classes].", Example: "T.CutMix()", batch: buildCutMix,
}

func buildCutMix(a *Args, in BatchInfo) (BatchOp, []item.Array, error) {
	m, add, err := buildMixer(a, in)
	if err == nil && len(m.groups) > 0 {
		err = fmt.Errorf("does not know which boxes are left of an image with a hole; use MixUp or Mosaic")
	}
	if err == nil && m.width == 0 {
		err = fmt.Errorf("the images of the batch have different sizes; say which are to be mixed with images=")
	}
	return &cutMix{m}, add, err
}

// drawBox draws the box that comes from the other record, and the share of the
// record's own label.
func (op *cutMix) drawBox(r *Rand) (x0, y0, x1, y1 int, lam float64) {
	lam = betaSample(r, op.alpha)
	w, h := op.width, op.height
	cx, cy := r.IntN(w), r.IntN(h)
	half := 0.5 * math.Sqrt(1-lam)
	hw, hh := int(half*float64(w)), int(half*float64(h))
	x0, y0 = max(cx-hw, 0), max(cy-hh, 0)
	x1, y1 = min(cx+hw, w), min(cy+hh, h)
	return x0, y0, x1, y1, 1 - float64((x1-x0)*(y1-y0))/float64(w*h)
}

// ApplyBatch makes it a BatchOp.
func (op *cutMix) ApplyBatch(r *Rand, b *Batch) error {
	if b.Rows == 0 {
		return nil
	}
	x0, y0, x1, y1, lam := op.drawBox(r)
	return op.apply(b, x0, y0, x1, y1, lam)
}

func (op *cutMix) apply(b *Batch, x0, y0, x1, y1 int, lam float64) error {
	for _, name := range op.images {
		arr, data := b.Array(name)
		if arr == nil {
			return fmt.Errorf("CutMix: the batch has no image %q", name)
		}
		// In NHWC a pixel is a run of channels; in NCHW each channel is a
		// plane of single elements.
		planes, pixel := 1, arr.DType.Size()*arr.Shape[2]
		if !channelsLast(arr.Shape) {
			planes, pixel = arr.Shape[0], arr.DType.Size()
		}
		line := op.width * pixel
		for p := range planes {
			for y := y0; y < y1; y++ {
				at := (p*op.height + y) * line
				rollSpan(data, int(arr.RowBytes), b.Rows, at+x0*pixel, at+x1*pixel)
			}
		}
	}
	return op.mixLabels(b, lam)
}

// betaSample draws from Beta(alpha, alpha).
func betaSample(r *Rand, alpha float64) float64 {
	if alpha == 1 {
		return r.Float64()
	}
	a, b := logGamma(r, alpha), logGamma(r, alpha)
	// x / (x + y) from logarithms: with a small alpha both are tiny.
	return 1 / (1 + math.Exp(b-a))
}

// logGamma draws the logarithm of a number of the gamma distribution of shape
// alpha (Marsaglia and Tsang 2000).
func logGamma(r *Rand, alpha float64) float64 {
	boost := 0.0
	if alpha < 1 {
		boost = math.Log(1-r.Float64()) / alpha
		alpha++
	}
	d := alpha - 1.0/3
	c := 1 / math.Sqrt(9*d)
	for {
		x := r.Normal()
		v := 1 + c*x
		if v <= 0 {
			continue
		}
		v = v * v * v
		u := 1 - r.Float64()
		if math.Log(u) < 0.5*x*x+d-d*v+d*math.Log(v) {
			return math.Log(d*v) + boost
		}
	}
}

// batchParts reads the operations inside a composite one. They share one array
// of soft labels, which whatever happens must be filled.
func batchParts(a *Args, in BatchInfo) (ops []softener, add []item.Array, err error) {
	var raw []json.RawMessage
	if json.Unmarshal(a.Raw("transforms"), &raw) != nil || len(raw) == 0 || len(raw) > maxOps {
		a.fail("transforms", "must be a list of 1 to %d operations", maxOps)
		return nil, nil, nil
	}
	if a.depth > 8 {
		return nil, nil, fmt.Errorf("operations are nested too deeply")
	}
	for i, r := range raw {
		op, more, err := compileBatchOp(r, in, a.depth+1)
		if err != nil {
			return nil, nil, err
		}
		s, ok := op.(softener)
		if !ok {
			return nil, nil, fmt.Errorf("%s cannot stand inside %s", opWord(r), a.spec.Name)
		}
		ops = append(ops, s)
		if i == 0 {
			add = more
		} else if !sameArrays(add, more) {
			return nil, nil, fmt.Errorf("the operations inside must have the same labels and number of classes")
		}
	}
	return ops, add, nil
}

func sameArrays(a, b []item.Array) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].Name != b[i].Name || a[i].Shape[0] != b[i].Shape[0] {
			return false
		}
	}
	return true
}

// batchChoice does one of its parts, or with p < 1 sometimes none.
type batchChoice struct {
	parts []softener
	upto  []float64
	p     float64
}

func buildBatchChoice(a *Args, in BatchInfo) (BatchOp, []item.Array, error) {
	ops, add, err := batchParts(a, in)
	op := &batchChoice{parts: ops, p: 1}
	if err == nil && a.err == nil {
		op.upto = shares(a, len(ops))
	}
	return op, add, err
}

func buildBatchApply(a *Args, in BatchInfo) (BatchOp, []item.Array, error) {
	ops, add, err := batchParts(a, in)
	if len(ops) > 1 {
		err = fmt.Errorf("takes one operation on batches, not %d", len(ops))
	}
	return &batchChoice{ops, []float64{1}, a.Float("p")}, add, err
}

// ApplyBatch makes it a BatchOp.
func (op *batchChoice) ApplyBatch(r *Rand, b *Batch) error {
	if !r.Bool(op.p) {
		return op.skip(b)
	}
	i := pick(op.upto, r.Float64())
	return withPart(r, i, func() error { return op.parts[i].ApplyBatch(r, b) })
}

// Grow makes it a Grower.
func (op *batchChoice) Grow(array string) int64 {
	most := int64(1)
	for _, part := range op.parts {
		if g, ok := part.(Grower); ok {
			most = max(most, g.Grow(array))
		}
	}
	return most
}

func (op *batchChoice) skip(b *Batch) error { return op.parts[0].skip(b) }
