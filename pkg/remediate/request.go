package remediate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"federator.dev/federator/pkg/remediate/internal/objects"
	"federator.dev/federator/pkg/remediate/internal/values"
)

// Content types of patches.
const (
	jsonPatch  = "application/json-patch+json"
	mergePatch = "application/merge-patch+json"
	applyPatch = "application/apply-patch+yaml"
	plainJSON  = "application/json"
)

// request is a request to write to a member.
type request struct {
	verb         string // POST, PATCH or DELETE
	contentType  string
	body         []byte
	delete       *metav1.DeleteOptions // the body of a DELETE
	fieldManager bool                  // it takes a field manager
	force        bool
	auditID      string // in the member's audit log; "": one that the member chooses
}

// decode reads JSON and keeps its numbers as they are written.
func decode(text []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("unexpected data after the JSON value")
	}
	return nil
}

// buildRequest returns the request of an intent, nil where nothing is to be done. before is
// the target, nil where there is none. Preconditions are part of the request: UID and
// resourceVersion, or that the target does not exist.
func (i *Intent) buildRequest(before map[string]any, action string) (*request, error) {
	switch i.Remedy.Action {
	case "apply":
		return i.buildApply(before, action)
	case "patch":
		if before == nil {
			return nil, fmt.Errorf("%w: the target to patch does not exist", errInvalidIntent)
		}
		return i.buildPatch(before, action)
	case "delete":
		return i.buildDelete(before)
	}
	return nil, fmt.Errorf("%w: action %q", errInvalidIntent, i.Remedy.Action)
}

// apiVersion is the apiVersion that an intent is written in, "" when not known.
func (i *Intent) apiVersion() string {
	var object struct {
		APIVersion string `json:"apiVersion"`
	}
	if i.Remedy.Action == "apply" && json.Unmarshal(i.Remedy.Object, &object) == nil && object.APIVersion != "" {
		return object.APIVersion
	}
	return i.APIVersion
}

func (i *Intent) buildApply(before map[string]any, action string) (*request, error) {
	var object map[string]any
	if err := decode(i.Remedy.Object, &object); err != nil {
		return nil, fmt.Errorf("%w: object: %w", errInvalidIntent, err)
	}
	if object == nil {
		return nil, fmt.Errorf("%w: object: it is null", errInvalidIntent)
	}
	kind, group := i.Remedy.Target.Kind.Split()
	version := i.apiVersion()
	if g, _, ok := strings.Cut(version, "/"); version == "" || ok != (group != "") || ok && g != group {
		return nil, fmt.Errorf("%w: object: apiVersion %q does not serve %s", errInvalidIntent, version, i.Remedy.Target.Kind)
	}
	object["apiVersion"], object["kind"] = version, kind
	meta, err := objectField(object, "metadata")
	if err != nil {
		return nil, err
	}
	annotations, err := objectField(meta, "annotations")
	if err != nil {
		return nil, err
	}
	if annotations[redactedAnnotation] != nil {
		return nil, fmt.Errorf("%w: object: its values come from the index, where they are redacted", errInvalidIntent)
	}
	meta["name"] = i.Remedy.Target.Name
	if i.Remedy.Target.Namespace != "" {
		meta["namespace"] = i.Remedy.Target.Namespace
	}
	for _, field := range []string{"uid", "resourceVersion", "managedFields", "creationTimestamp", "generation"} {
		delete(meta, field)
	}
	delete(object, "status")
	annotations[actionAnnotation] = action
	req := &request{verb: "POST", contentType: plainJSON, fieldManager: true}
	if before != nil {
		meta["uid"], meta["resourceVersion"] = i.UID, i.ResourceVersion
		req = &request{verb: "PATCH", contentType: applyPatch, fieldManager: true, force: i.Force}
	}
	req.body, err = json.Marshal(object)
	return req, err
}

// objectField returns a field that is an object, created if absent.
func objectField(object map[string]any, field string) (map[string]any, error) {
	if object[field] == nil {
		made := map[string]any{}
		object[field] = made
		return made, nil
	}
	m, ok := object[field].(map[string]any)
	if !ok {
		return nil, fmt.Errorf("%w: %s is not an object", errInvalidIntent, field)
	}
	return m, nil
}

func (i *Intent) buildPatch(before map[string]any, action string) (*request, error) {
	if values.IsJSONPatch(i.Remedy.Patch) {
		return i.buildJSONPatch(before, action)
	}
	var patch map[string]any
	if err := decode(i.Remedy.Patch, &patch); err != nil {
		return nil, fmt.Errorf("%w: patch: %w", errInvalidIntent, err)
	}
	meta, err := patchField(patch, "metadata")
	if err != nil {
		return nil, err
	}
	annotations, err := patchField(meta, "annotations")
	if err != nil {
		return nil, err
	}
	annotations[actionAnnotation] = action
	meta["uid"], meta["resourceVersion"] = i.UID, i.ResourceVersion
	body, err := json.Marshal(patch)
	return &request{verb: "PATCH", contentType: mergePatch, body: body, fieldManager: true}, err
}

// patchField is objectField of a merge patch, where null is a change.
func patchField(patch map[string]any, field string) (map[string]any, error) {
	if value, has := patch[field]; has && value == nil {
		return nil, fmt.Errorf("%w: patch: %s cannot be removed entirely", errInvalidIntent, field)
	}
	return objectField(patch, field)
}

const annotationsPath = "/metadata/annotations"

// buildJSONPatch lets the API server detect a changed target: setting the resourceVersion
// that was evaluated is an optimistic lock. The added operations come after the remedy's
// own, which cannot undo them.
func (i *Intent) buildJSONPatch(before map[string]any, action string) (*request, error) {
	var ops []values.PatchOp
	if err := decode(i.Remedy.Patch, &ops); err != nil {
		return nil, fmt.Errorf("%w: patch: %w", errInvalidIntent, err)
	}
	meta, _ := before["metadata"].(map[string]any)
	_, has := meta["annotations"].(map[string]any)
	var all []any
	if !has { // the remedy's own operations may rely on them
		all = append(all, values.PatchOp{Op: "add", Path: annotationsPath, Value: map[string]any{}})
		has = true
	}
	var own []json.RawMessage // as they are: a value may be null, or absent
	if err := json.Unmarshal(i.Remedy.Patch, &own); err != nil {
		return nil, fmt.Errorf("%w: patch: %w", errInvalidIntent, err)
	}
	for n, op := range ops {
		switch all = append(all, own[n]); {
		case op.Op == "remove" && op.Path == annotationsPath, op.Op == "move" && op.From == annotationsPath:
			has = false
		case (op.Op == "add" || op.Op == "replace" || op.Op == "move" || op.Op == "copy") && op.Path == annotationsPath:
			has = true
		}
	}
	if !has {
		all = append(all, values.PatchOp{Op: "add", Path: annotationsPath, Value: map[string]any{}})
	}
	all = append(all,
		values.PatchOp{Op: "add", Path: annotationsPath + "/" + strings.ReplaceAll(actionAnnotation, "/", "~1"), Value: action},
		values.PatchOp{Op: "add", Path: "/metadata/uid", Value: i.UID},
		values.PatchOp{Op: "add", Path: "/metadata/resourceVersion", Value: i.ResourceVersion})
	body, err := json.Marshal(all)
	return &request{verb: "PATCH", contentType: jsonPatch, body: body, fieldManager: true}, err
}

func (i *Intent) buildDelete(before map[string]any) (*request, error) {
	if before == nil || objects.Terminating(before) {
		return nil, nil // It is gone already, or being deleted.
	}
	uid := types.UID(i.UID)
	options := &metav1.DeleteOptions{
		TypeMeta:      metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"},
		Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &i.ResourceVersion},
	}
	if p := metav1.DeletionPropagation(i.Remedy.Propagation); p != "" {
		options.PropagationPolicy = &p
	}
	return &request{verb: "DELETE", contentType: plainJSON, delete: options}, nil
}
