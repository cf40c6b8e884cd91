package cli

// instead is the replacement for a name of another library, or for an argument of another loader.
type instead struct {
	Names []string `json:"names"`
	Doc   string   `json:"doc"`
}

const (
	toFloat   = `write stoker.transforms.ToDtype("float32", scale=True)`
	function  = "give a function to map= or batch_map= of stoker.Loader"
	inApply   = ", in stoker.transforms.RandomApply"
	ranksFrom = "use ranks=stoker.Ranks(rank, world_size)"
)

// elsewhere lists names of other libraries that Stoker does not have.
var elsewhere = []instead{
	{[]string{"ToTensor", "ConvertImageDtype", "ConvertDtype"}, toFloat},
	{[]string{"PILToTensor", "ToImage", "ToPureTensor", "ToNumpy"}, "images come as uint8 without it; stoker.Field(..., layout=) is NCHW or NHWC"},
	{[]string{"Identity"}, "leave it out"},
	{[]string{"ToPILImage"}, `write PIL.Image.fromarray(batch["image"][i]), with output="numpy"`},
	{[]string{"AutoAugmentPolicy"}, `write policy="imagenet", "cifar10" or "svhn"`},
	{[]string{"InterpolationMode"}, `write interpolation="nearest", "bilinear" or "bicubic"`},
	{[]string{"AugMix"}, "write stoker.transforms.RandAugment(), or use torchvision's in map="},
	{[]string{"RandomPhotometricDistort"}, "write stoker.transforms.ColorJitter(...)" + inApply},
	{[]string{"RandomZoomOut"}, "write stoker.transforms.Pad(...)" + inApply},
	{[]string{"ScaleJitter", "RandomShortestSize", "RandomResize"}, "write stoker.transforms.Resize(size)"},
	{[]string{"Lambda", "FiveCrop", "TenCrop", "LinearTransformation", "GaussianNoise", "JPEG", "RandomChannelPermutation", "functional", "v2", "SequentialTransform"}, function},
	{[]string{"DataLoader"}, "write stoker.Loader(...), or from stoker.torch import DataLoader"},
}

// otherArguments lists arguments of other loaders.
var otherArguments = []instead{
	{[]string{"pin_memory"}, "batches already lie in shared memory that can be copied from directly"},
	{[]string{"persistent_workers"}, "the engine always lives as long as the loader"},
	{[]string{"prefetch_factor"}, "use limits=stoker.Limits(prefetch=N), the number of batches built ahead"},
	{[]string{"num_workers"}, "threads= are the engine's threads, workers= the processes of map="},
	{[]string{"collate_fn"}, "the engine puts batches together; functions go into map= and batch_map="},
	{[]string{"worker_init_fn"}, "random numbers of map= are set for each record"},
	{[]string{"multiprocessing_context"}, "processes of map= are started as multiprocessing.set_start_method() says"},
	{[]string{"generator"}, "use seed="},
	{[]string{"sampler", "batch_sampler"}, "use batch_size=, shuffle= and seed="},
	{[]string{"order"}, "use shuffle="},
	{[]string{"pipelines", "transform", "fields", "batch_transforms"}, "use transforms={'image': [...]}, or map= for a function"},
	{[]string{"batch"}, "use batch_size="},
	{[]string{"world", "num_replicas", "num_shards", "shard_id", "rank", "world_size"}, ranksFrom},
	{[]string{"on_device"}, "use device=stoker.OnDevice(...)"},
	{[]string{"layout"}, `use stoker.Field("image", [...], layout=...) in transforms=`},
	{[]string{"pad"}, "use transforms={NAME: stoker.Padded(...)}"},
	{[]string{"sequence_length"}, "use stoker.open(path).sequences(length)"},
	{[]string{"socket"}, "set STOKER_SOCKET in the environment"},
}

func describeInstead(list []instead) func(p *page) {
	return func(p *page) {
		for _, one := range list {
			for _, name := range one.Names {
				p.item(name, 28, one.Doc)
			}
		}
	}
}
