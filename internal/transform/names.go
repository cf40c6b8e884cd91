package transform

import "slices"

// Operations returns the operations on single records and the parameters of each.
func Operations() map[string][]string {
	all := map[string][]string{}
	for _, s := range slices.Concat(specs(), soundSpecs(), volumeSpecs()) {
		all[s.Name] = append([]string{}, slices.Sorted(slices.Values(s.Keys))...) // [] and not null
	}
	return all
}

// BatchOperations returns the operations on batches and the parameters of each.
func BatchOperations() map[string][]string {
	all := map[string][]string{}
	for _, s := range batchSpecs() {
		all[s.Name] = slices.Sorted(slices.Values(s.Keys))
	}
	return all
}

// OutputKeys returns the keys of an output.
func OutputKeys() []string { return slices.Clone(outputKeys) }

// DTypes returns the names of the types that ToDtype converts to.
func DTypes() []string {
	var all []string
	for _, t := range toDtypes {
		all = append(all, t.String())
	}
	slices.Sort(all)
	return all
}
