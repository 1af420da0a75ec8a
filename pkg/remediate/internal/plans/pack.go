package plans

import (
	"bytes"
	"encoding/json"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/api/v1alpha1"
)

// maxText is the size of spec.targets of a part as a JSON string. The rest is for metadata.
const maxText = v1alpha1.MaxPlanPartBytes - 4<<10

// closing ends the last group of a part and the list of groups.
const closing = "]}]"

// packer writes targets into parts.
type packer struct {
	plan  string
	parts []*v1alpha1.PlanPart
	group v1alpha1.PlanGroup // the last one, without its targets
	text  []byte
	size  int // of text as a JSON string
}

// pack returns the parts of a Plan with these targets, in order.
func pack(plan string, targets []Target) ([]*v1alpha1.PlanPart, error) {
	p := &packer{plan: plan}
	for i := range targets {
		if err := p.add(&targets[i]); err != nil {
			return nil, err
		}
	}
	p.flush()
	return p.parts, nil
}

// add appends a target, to a new part if this one is full.
func (p *packer) add(t *Target) error {
	target, err := json.Marshal(v1alpha1.PlannedTarget{
		Namespace: t.Ref.Namespace, Name: t.Ref.Name, UID: t.UID, Remedy: t.Remedy, Actions: strings.Fields(t.Actions),
		Irreversible: t.Irreversible, Diff: t.Diff, DryRun: t.DryRun, Message: t.Message,
	})
	if err != nil {
		return err
	}
	group := v1alpha1.PlanGroup{
		Member: t.Ref.Member, MemberUID: t.MemberUID, APIVersion: t.APIVersion, Kind: string(t.Ref.Kind), Verb: t.Verb, Targets: []v1alpha1.PlannedTarget{},
	}
	before, err := p.separator(&group)
	if err != nil {
		return err
	}
	n := escaped(before) + escaped(target)
	if len(p.text) > 0 && p.size+n+len(closing) > maxText {
		p.flush()
		if before, err = p.separator(&group); err != nil {
			return err
		}
		n = escaped(before) + escaped(target)
	}
	p.text, p.size, p.group = append(append(p.text, before...), target...), p.size+n, group
	return nil
}

// separator is what comes before the next target if it is in the group.
func (p *packer) separator(g *v1alpha1.PlanGroup) ([]byte, error) {
	last := &p.group
	if len(p.text) > 0 && g.Member == last.Member && g.MemberUID == last.MemberUID && g.APIVersion == last.APIVersion && g.Kind == last.Kind && g.Verb == last.Verb {
		return []byte(","), nil
	}
	opening := "["
	if len(p.text) > 0 {
		opening = "]},"
	}
	text, err := json.Marshal(g)
	if err != nil {
		return nil, err
	}
	return append([]byte(opening), bytes.TrimSuffix(text, []byte("]}"))...), nil // The targets are its last field.
}

// flush ends a part.
func (p *packer) flush() {
	if len(p.text) == 0 {
		return
	}
	number := int32(len(p.parts) + 1) // At most one for each target.
	p.parts = append(p.parts, &v1alpha1.PlanPart{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion().String(), Kind: "PlanPart"},
		ObjectMeta: metav1.ObjectMeta{Name: PartName(p.plan, number)},
		Spec:       v1alpha1.PlanPartSpec{Plan: p.plan, Number: number, Targets: string(p.text) + closing},
	})
	p.text, p.size = p.text[:0], 0
}

// escaped is the size of JSON within a JSON string. It has no control characters.
func escaped(text []byte) int {
	return len(text) + bytes.Count(text, []byte{'"'}) + bytes.Count(text, []byte{'\\'})
}
