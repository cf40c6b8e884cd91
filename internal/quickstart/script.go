package quickstart

import (
	_ "embed"
	"fmt"
	"strconv"
	"strings"
	"text/template"

	"github.com/stokerdata/stoker/internal/units"
	"github.com/stokerdata/stoker/source/driver"
)

// A Framework is the library that a script trains with.
type Framework string

// The frameworks.
const (
	Torch Framework = "torch"
	NumPy Framework = "numpy"
)

//go:embed torch.py.tmpl
var torchText string

//go:embed numpy.py.tmpl
var numpyText string

var templates = map[Framework]*template.Template{
	Torch: template.Must(template.New("torch").Parse(torchText)),
	NumPy: template.Must(template.New("numpy").Parse(numpyText)),
}

// program has the parts of a script that depend on the data. Read is the body of the function read, View the lines with
// views of the dataset, Classes the lines that set classes.
type program struct {
	Title, Task, Source, View, Train, Val, Read, Classes string
	Imports                                              []string
	Batch                                                int64
	Shuffle                                              bool
	// Of PyTorch: a class for the model, the model, and its loss. Argmax is a part of the target in its comparison.
	Model, Net, Criterion, Argmax string
	Itertools                     bool
	// Accuracy reports that the script counts right answers. Of NumPy: Linear reports that there is something to learn,
	// Numbers describes what is added up otherwise.
	Accuracy, Linear bool
	Numbers          string
}

// Suits returns the framework of a script for d: one that only reads records needs NumPy alone.
func (d *Data) Suits(f Framework) Framework {
	if d.Task == Read {
		return NumPy
	}
	return f
}

// Script returns a Python program that trains a small model on d.
func (d *Data) Script(f Framework) string {
	f = d.Suits(f)
	modules := map[string]bool{}
	p := &program{
		Title: d.title(), Task: d.Says(), Source: pythonText(d.URL), Batch: d.batch(), Shuffle: !d.Sequential,
		Train: python(d.transforms(true), modules),
	}
	if !d.Sequential && d.Len >= 4 {
		p.Val = python(d.transforms(false), modules)
	}
	if d.Task == Table {
		p.View = d.tensors(p.Val != "")
	}
	if d.Task == Language && d.X.Kind == driver.KindTokens && f == Torch {
		p.View, p.Val = fmt.Sprintf("    train = data.sequences(%d)\n", sequence), ""
	}
	for _, m := range []string{"audio", "volume"} {
		if modules[m] {
			p.Imports = append(p.Imports, "from stoker import "+m)
		}
	}
	if modules["T"] {
		p.Imports = append(p.Imports, "from stoker import transforms as T")
	}
	p.Accuracy = d.Task == Classify || d.Task == Table && d.isClass(d.Y)
	if f == Torch {
		d.torch(p)
	} else {
		d.numpy(p)
	}
	var out strings.Builder
	if err := templates[f].Execute(&out, p); err != nil {
		panic(err) // the templates are a part of this program
	}
	return out.String()
}

// sequence is the number of tokens of a sequence.
const sequence = 128

// title is the data in a few words: the name, the number of records and the classes.
func (d *Data) title() string {
	text := fmt.Sprintf("%s: %s", d.URL, units.Records(d.Len))
	if n := d.classes(); n > 0 {
		text += " in " + units.Plural(n, "class")
	}
	return strings.NewReplacer(`\`, `/`, `"`, "'").Replace(text)
}

// pythonText is a string in Python's notation.
func pythonText(s string) string { return strconv.QuoteToASCII(s) }

// isClass reports whether a column of a table holds classes.
func (d *Data) isClass(f *driver.Field) bool {
	return f.Kind == driver.KindLabel || f.Kind == driver.KindText || f == d.label()
}

// tensors are the views that make two arrays of the columns of a table: x, and y to predict. Means and codes are those
// of the training records.
func (d *Data) tensors(val bool) string {
	var x []string
	for i := range d.Fields {
		f := &d.Fields[i]
		switch {
		case f.Name == d.Y.Name:
		case f.Kind == driver.KindText:
			x = append(x, pythonText(f.Name+":onehot:top=16"))
		case f.Kind == driver.KindLabel:
			x = append(x, pythonText(f.Name+":onehot"))
		case isColumn(f):
			x = append(x, pythonText(f.Name+":normalize"))
		}
	}
	y := d.Y.Name + ":normalize"
	if d.isClass(d.Y) {
		y = d.Y.Name + ":onehot"
	}
	view := fmt.Sprintf("    train = train.tensors({\"x\": [%s], \"y\": [%s]})\n", strings.Join(x, ", "), pythonText(y))
	if val {
		view += "    val = val.tensors(of=train)  # the means and codes of train\n"
	}
	return view
}

// body indents the lines of a function.
func body(lines ...string) string {
	return "    " + strings.Join(lines, "\n    ")
}

// field is a field of the batch in Python.
func field(f *driver.Field) string { return fmt.Sprintf("batch[%s]", pythonText(f.Name)) }

// torch fills in the parts of a script for PyTorch.
func (d *Data) torch(p *program) {
	x, axes := "", 2
	if d.X != nil {
		switch d.X.Kind {
		case driver.KindImage:
			x = field(d.X) + ".float() / 255"
			if d.X.DType != "" { // numbers, not a picture
				x = field(d.X) + ".float()"
			}
		case driver.KindFrames:
			x, axes = field(d.X)+".transpose(1, 2).float() / 255", 3
		case driver.KindVolume:
			x, axes = field(d.X)+".unflatten(0, (-1, 1)).float()", 3
			if len(d.X.Shape) > 3 {
				x = field(d.X) + ".float()"
			}
		case driver.KindAudio:
			x = field(d.X) + ".float() / 80"
		default:
			x, axes = field(d.X)+".float().flatten(1)", 0
		}
	}
	count := "    classes = %s\n"
	switch n := d.classes(); {
	case n > 0:
		p.Classes = fmt.Sprintf(count, strconv.Itoa(n))
	case d.Task == Classify:
		p.Classes = fmt.Sprintf(count, fmt.Sprintf("1 + max(int(%s.max()) for batch in data.select(%s).loader(batch_size=4096))", field(d.Y), pythonText(d.Y.Name)))
	case d.Task == Segment:
		p.Itertools = true
		p.Classes = "    # A class that the first batches do not have is ignored.\n" +
			fmt.Sprintf(count, "1 + max(int(y[y < 255].max()) for _, y in map(read, itertools.islice(train_loader, 16)))")
	}
	p.Criterion = "nn.functional.cross_entropy"
	switch d.Task {
	case Classify:
		p.Read = body("return " + x + ", " + field(d.Y) + ".long()")
		p.Net = convolutions(axes)
		if axes == 0 {
			p.Net = perceptron("classes")
		}
	case Segment:
		y := field(d.Y) + ".long()"
		p.Read = body("return " + x + ", " + y)
		p.Net = sequential(
			fmt.Sprintf("nn.LazyConv%dd(16, 3, padding=1)", axes), "nn.ReLU()",
			fmt.Sprintf("nn.LazyConv%dd(16, 3, padding=1)", axes), "nn.ReLU()", fmt.Sprintf("nn.LazyConv%dd(classes, 1)", axes),
		)
		p.Criterion = "lambda out, y: nn.functional.cross_entropy(out, torch.where(y < classes, y, 255), ignore_index=255)"
	case Detect:
		d.torchDetect(p, x)
	case Table:
		p.Read = body(`return batch["x"].float(), batch["y"].float()`)
		p.Net = perceptron("y.shape[1]")
		p.Argmax = ".argmax(1)"
		if !p.Accuracy {
			p.Criterion = "nn.functional.mse_loss"
		}
	case Language:
		d.torchLanguage(p)
	case Reconstruct:
		p.Read = body("x = "+x, "return x, x")
		p.Criterion = "nn.functional.mse_loss"
		p.Net = sequential(
			fmt.Sprintf("nn.LazyConv%dd(32, 3, stride=2, padding=1)", axes), "nn.ReLU()",
			fmt.Sprintf("nn.LazyConv%dd(8, 3, stride=2, padding=1)", axes), "nn.ReLU()",
			"nn.Upsample(size=x.shape[2:])", fmt.Sprintf("nn.LazyConv%dd(x.shape[1], 3, padding=1)", axes),
		)
		if axes == 0 {
			p.Net = sequential("nn.LazyLinear(32)", "nn.ReLU()", "nn.LazyLinear(x.shape[1])")
		}
	}
}

// sequential is a network of layers.
func sequential(layers ...string) string {
	return "nn.Sequential(\n        " + strings.Join(layers, ",\n        ") + ",\n    )"
}

// convolutions is a network that gives classes of images, or of volumes and clips.
func convolutions(axes int) string {
	return sequential(
		fmt.Sprintf("nn.LazyConv%dd(16, 5, stride=2, padding=2)", axes), "nn.ReLU()",
		fmt.Sprintf("nn.LazyConv%dd(32, 3, stride=2, padding=1)", axes), "nn.ReLU()",
		fmt.Sprintf("nn.LazyConv%dd(64, 3, stride=2, padding=1)", axes), "nn.ReLU()",
		fmt.Sprintf("nn.AdaptiveAvgPool%dd(1)", axes), "nn.Flatten()", "nn.LazyLinear(classes)",
	)
}

// perceptron is a network for arrays and columns.
func perceptron(outputs string) string {
	return sequential("nn.LazyLinear(64)", "nn.ReLU()", "nn.LazyLinear(64)", "nn.ReLU()", "nn.LazyLinear("+outputs+")")
}

// cell is the side of a cell of the detector in pixels.
const cell = 16

// torchDetect makes a detector that says for each cell of a grid which class of object has its middle there.
func (d *Data) torchDetect(p *program, x string) {
	boxes, class := field(d.Y), "1"
	if d.Labels != nil {
		class = "1 + " + field(d.Labels) + ".values.long()"
	} else {
		p.Classes = "    classes = 1\n"
	}
	middle := "boxes[:, :2] + boxes[:, 2:] / 2" // XYWH
	switch d.Y.Format {
	case driver.XYXY:
		middle = "(boxes[:, :2] + boxes[:, 2:]) / 2"
	case driver.CXCYWH:
		middle = "boxes[:, :2]"
	}
	p.Read = body(
		"x = "+x,
		"boxes, offsets = "+boxes+".values, "+boxes+".offsets",
		"middles = "+middle,
		fmt.Sprintf("column, row = (middles / %d).long().clamp(0, %d).T  # cells of %d x %d pixels", cell, objectSide/cell-1, cell, cell),
		"image = torch.repeat_interleave(torch.arange(len(x), device=boxes.device), offsets.diff())",
		fmt.Sprintf("y = torch.zeros(len(x), %d, %d, dtype=torch.long, device=x.device)  # 0: no object in this cell", objectSide/cell, objectSide/cell),
		"y[image, row, column] = "+class,
		"return x, y",
	)
	p.Net = sequential(
		"nn.LazyConv2d(16, 5, stride=4, padding=2)", "nn.ReLU()", "nn.LazyConv2d(32, 3, stride=2, padding=1)", "nn.ReLU()",
		"nn.LazyConv2d(64, 3, stride=2, padding=1)", "nn.ReLU()", "nn.LazyConv2d(1 + classes, 3, padding=1)",
	)
}

// torchLanguage makes a recurrent network that predicts the next token, or the next byte of a text.
func (d *Data) torchLanguage(p *program) {
	p.Model = `class Model(nn.Module):
    """A recurrent network that predicts the next token at each position."""

    def __init__(self, tokens):
        super().__init__()
        self.embed = nn.Embedding(tokens, 64)
        self.recur = nn.GRU(64, 128, batch_first=True)
        self.out = nn.Linear(128, tokens)

    def forward(self, x):
        return self.out(self.recur(self.embed(x))[0]).transpose(1, 2)
`
	p.Net = "Model(256)"
	if d.X.Kind == driver.KindTokens {
		p.Read = body(`return batch["input"].long(), batch["target"].long()`)
		p.Classes = "    tokens = 1 + max(int(max(x.max(), y.max())) for x, y in map(read, train_loader))\n"
		p.Net = "Model(tokens)"
		return
	}
	p.Read = body(
		fmt.Sprintf("rows = [torch.frombuffer(bytearray(text.encode()[:%d] or b\" \"), dtype=torch.uint8) for text in %s]", sequence, field(d.X)),
		"x = nn.utils.rnn.pad_sequence(rows, batch_first=True).long().to(device)",
		"return x[:, :-1], x[:, 1:]",
	)
}

// numpy fills in the parts of a script without PyTorch: a linear model, or mean and standard deviation of the values.
func (d *Data) numpy(p *program) {
	x := ""
	if d.X != nil {
		x = d.features()
	}
	p.Linear = true
	switch d.Task {
	case Classify:
		p.Read = body("x = "+x, "return x, np.eye(CLASSES, dtype=np.float32)["+field(d.Y)+"]")
		n := strconv.Itoa(d.classes())
		if n == "0" {
			n = fmt.Sprintf("1 + max(int(%s.max()) for batch in stoker.open(SOURCE).select(%s).loader(batch_size=4096))", field(d.Y), pythonText(d.Y.Name))
		}
		p.Train += "\nCLASSES = " + n
	case Segment:
		p.Read = body("x = "+x, "y = "+field(d.Y)+".reshape(len(x), -1) > 0  # the share of the pixels that are not background", "return x, y.mean(axis=1, keepdims=True)")
	case Detect:
		p.Read = body("x = "+x, "y = np.diff("+field(d.Y)+".offsets)[:, None].astype(np.float32)  # the number of objects", "return x, y")
	case Table:
		p.Read = body(`return batch["x"], batch["y"]`)
	default:
		p.Linear, p.Accuracy = false, false
		d.numbers(p)
	}
}

// features are a few numbers of each record for a linear model.
func (d *Data) features() string {
	step := func(side int) int { return max(side/8, 1) }
	part := ""
	switch d.X.Kind {
	case driver.KindImage:
		side := imageSide
		if d.Task == Detect {
			side = objectSide
		} else if d.X.Width > 0 && d.Task != Segment {
			side = int(min(d.X.Width, d.X.Height))
		}
		part = fmt.Sprintf("[:, ::%d, ::%d]", step(side), step(side))
	case driver.KindFrames:
		part = fmt.Sprintf("[:, ::4, ::%d, ::%d]", step(clipSide), step(clipSide))
	case driver.KindVolume:
		part = fmt.Sprintf("[..., ::%d, ::%d, ::%d]", step(volumeSide), step(volumeSide), step(volumeSide))
	case driver.KindAudio:
		return field(d.X) + ".mean(axis=-1).reshape(" + "len(" + field(d.X) + "), -1) / 80"
	}
	return fmt.Sprintf("%s%s.reshape(len(%s), -1).astype(np.float32)", field(d.X), part, field(d.X))
}

// numbers makes the script add up the values of the first field.
func (d *Data) numbers(p *program) {
	if d.X == nil {
		p.Read, p.Numbers = body("return np.zeros(len(batch))"), "nothing"
		return
	}
	p.Numbers = d.X.Name
	switch d.X.Kind {
	case driver.KindText, driver.KindJSON, driver.KindBytes, driver.KindMultiLabel:
		p.Numbers = "length of " + d.X.Name
		p.Read = body("return np.array([len(value) for value in " + field(d.X) + "], np.float64)")
	case driver.KindTokens, driver.KindRagged:
		p.Read = body("return " + field(d.X) + ".values.astype(np.float64)")
	default:
		p.Read = body("return " + field(d.X) + ".astype(np.float64)")
	}
}
