package enforce

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"federator.dev/federator/internal/clip"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate"
)

// maxMessage bounds the message of an intent that several violations give theirs to, in bytes.
const maxMessage = 4096

// Combine returns the one intent for a target of which several processes that share a fleet have intents, or parts of them, in the
// same way as a Corrector combines those of its own.
func Combine(intents []*remediate.Intent) remediate.Intent {
	if len(intents) == 1 {
		return *intents[0]
	}
	out, _ := combine(slices.SortedStableFunc(slices.Values(intents), compareIntents))
	return out
}

// combine returns the intent for a target that several violations of a policy would correct,
// and how many of their remedies are left for later. Applies are merged, and so are merge
// patches. Otherwise the first remedy is chosen; the verdicts after its write say what is
// still to be done. If remedies contradict each other the intent is refused: whichever was
// written, another violation would revert it.
//
// Of two versions of the policy, the new one's are combined, and the former one's are left for
// later: each write is of one version, and what both require waits for the waves of the new one.
// A contradiction between the two is the new one's.
func combine(intents []*remediate.Intent) (out remediate.Intent, deferred int) {
	former, present := byVersion(intents)
	if len(present) == 0 || len(former) == 0 {
		return combineVersion(intents)
	}
	out, deferred = combineVersion(present)
	own := distinctRemedies(present)
	all := distinctRemedies(append(slices.Clone(present), former...))
	if out.Refused != "" || len(all) == len(own) {
		return out, deferred
	}
	slices.SortStableFunc(all, compareIntents)
	if why := findContradiction(all); why != "" {
		out = *present[0]
		out.Refused = why
		return out, 0
	}
	return out, deferred + len(all) - len(own)
}

// byVersion parts intents of the former version of the policy from others.
func byVersion(intents []*remediate.Intent) (former, present []*remediate.Intent) {
	for _, i := range intents {
		if i.Former {
			former = append(former, i)
		} else {
			present = append(present, i)
		}
	}
	return former, present
}

// distinctRemedies returns one intent for each remedy.
func distinctRemedies(intents []*remediate.Intent) []*remediate.Intent {
	return slices.CompactFunc(slices.SortedStableFunc(slices.Values(intents), compareRemedies), func(x, y *remediate.Intent) bool { return compareRemedies(x, y) == 0 })
}

// distinctParts returns what other processes combine instead of the intents for a target, nil where that is the first: one for each
// remedy of a version and member whose subjects require it, however many subjects these are.
func distinctParts(intents []*remediate.Intent) []*remediate.Intent {
	order := func(x, y *remediate.Intent) int {
		return cmp.Or(compareRemedies(x, y), cmp.Compare(x.Version, y.Version), cmp.Compare(x.Subject.Ref.Member, y.Subject.Ref.Member))
	}
	parts := slices.CompactFunc(slices.SortedStableFunc(slices.Values(intents), order), func(x, y *remediate.Intent) bool { return order(x, y) == 0 && x.Former == y.Former })
	if len(parts) == 1 {
		return nil
	}
	slices.SortStableFunc(parts, compareIntents)
	return slices.Clone(parts) // not the room of all
}

// combineVersion is combine for the intents of one version.
func combineVersion(intents []*remediate.Intent) (out remediate.Intent, deferred int) {
	out = *intents[0]
	distinct := distinctRemedies(intents)
	if len(distinct) == 1 {
		return out, 0
	}
	slices.SortStableFunc(distinct, compareIntents)
	if why := findContradiction(distinct); why != "" {
		out.Refused = why
		return out, 0
	}
	body := bodyOf(&out.Remedy)
	if body == nil || isList(*body) {
		return describe(out, distinct), len(distinct) - 1
	}
	merged := map[string]any{}
	var later []*remediate.Intent
	for _, i := range distinct {
		var one map[string]any
		if b := bodyOf(&i.Remedy); i.Remedy.Action != out.Remedy.Action || isList(*b) || decode(*b, &one) != nil {
			later = append(later, i)
			continue
		}
		merge(merged, one)
		if len(out.Message) <= maxMessage && i != distinct[0] && !strings.Contains(out.Message, i.Message) {
			out.Message += "; " + i.Message
		}
	}
	text, err := json.Marshal(merged)
	if err != nil {
		panic(err) // decoded JSON
	}
	*body = text
	return describe(out, append(distinct[:1:1], later...)), len(later)
}

// describe adds to the message of an intent which others are left for later, as long as it has
// room.
func describe(out remediate.Intent, list []*remediate.Intent) remediate.Intent {
	for _, i := range list[1:] {
		if len(out.Message) > maxMessage {
			break
		}
		out.Message += fmt.Sprintf("; later, to %s the same object: %s", i.Remedy.Action, i.Message)
	}
	out.Message = clip.Text(out.Message, maxMessage)
	return out
}

func compareRemedies(x, y *remediate.Intent) int {
	return cmp.Or(
		cmp.Compare(x.Remedy.Action, y.Remedy.Action), bytes.Compare(x.Remedy.Patch, y.Remedy.Patch),
		bytes.Compare(x.Remedy.Object, y.Remedy.Object), cmp.Compare(x.Remedy.Propagation, y.Remedy.Propagation),
	)
}

// bodyOf returns the object or the patch of a remedy, nil for a deletion.
func bodyOf(r *policy.Remedy) *json.RawMessage {
	switch r.Action {
	case "apply":
		return &r.Object
	case "patch":
		return &r.Patch
	}
	return nil
}

// isList reports whether a patch is a JSON patch (RFC 6902), not a merge patch.
func isList(text []byte) bool { return bytes.HasPrefix(bytes.TrimSpace(text), []byte("[")) }

func decode(text []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	return d.Decode(into)
}

// merge adds the fields of one object to another; they do not contradict each other.
func merge(into, from map[string]any) {
	for field, value := range from {
		a, isMap := into[field].(map[string]any)
		b, toMap := value.(map[string]any)
		if isMap && toMap {
			merge(a, b)
		} else if !isMap || len(a) == 0 {
			into[field] = value
		}
	}
}

func jsonText(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err) // decoded JSON
	}
	return string(text)
}
