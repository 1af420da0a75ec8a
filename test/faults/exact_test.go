package faults

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers"
)

// objectsOf reads a list, as one text for each object, by namespace and name, shaped alike
// whether a member answers or federator does: what is not kept is taken out of what the member
// says, and what federator adds of what it says.
func objectsOf(raw []byte, kind string) (map[string]string, error) {
	var list struct {
		Items []map[string]any `json:"items"`
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(&list); err != nil {
		return nil, err
	}
	out := map[string]string{}
	for _, o := range list.Items {
		metadata, _ := o["metadata"].(map[string]any)
		delete(metadata, "managedFields")
		delete(o, "kind")
		delete(o, "apiVersion")
		annotations, _ := metadata["annotations"].(map[string]any)
		if rv, ok := annotations["federator.dev/resource-version"]; ok {
			metadata["resourceVersion"] = rv
		}
		for key := range annotations {
			if strings.HasPrefix(key, "federator.dev/") && key != "federator.dev/action" {
				delete(annotations, key)
			}
		}
		if len(annotations) == 0 {
			delete(metadata, "annotations")
		}
		if kind == "ConfigMap" || kind == "Secret" {
			redact(o, annotations)
		}
		text, err := json.Marshal(o)
		if err != nil {
			return nil, err
		}
		key := fmt.Sprint(metadata["namespace"], "/", metadata["name"])
		if _, twice := out[key]; twice {
			return nil, fmt.Errorf("%s is listed twice", key)
		}
		out[key] = string(text)
	}
	return out, nil
}

func redact(o, annotations map[string]any) {
	delete(annotations, "kubectl.kubernetes.io/last-applied-configuration")
	for _, field := range []string{"data", "binaryData"} {
		values, _ := o[field].(map[string]any)
		for k := range values {
			values[k] = ""
		}
	}
}

// compare lists at a member and at federator, and says where they differ.
func (r *rig) compare(ctx context.Context, m *member, path, kind string) error {
	truth, err := get(ctx, m.direct, m.host+path)
	if err != nil {
		return fmt.Errorf("%s of %s: %w", path, m.name, err)
	}
	want, err := objectsOf(truth, kind)
	if err != nil {
		return err
	}
	answer, err := get(ctx, r.client, "https://"+r.query+"/members/"+m.name+path)
	if err != nil {
		return fmt.Errorf("%s of %s at federator: %w", path, m.name, err)
	}
	got, err := objectsOf(answer, kind)
	if err != nil {
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(want)) {
		if got[key] != want[key] {
			return fmt.Errorf("%s %s of %s differs:\nfederator %.400s\nmember    %.400s", kind, key, m.name, got[key], want[key])
		}
	}
	if len(got) != len(want) {
		return fmt.Errorf("%s of %s: %d objects, the member has %d", kind, m.name, len(got), len(want))
	}
	return nil
}

// exact compares what is written to.
func (r *rig) exact(ctx context.Context) error {
	for _, m := range r.members {
		for path, kind := range map[string]string{configMaps: "ConfigMap", deployments: "Deployment", widgets: "Widget"} {
			if err := r.compare(ctx, m, path, kind); err != nil {
				return err
			}
		}
	}
	return nil
}

// exactEverywhere compares all kinds that are kept.
func (r *rig) exactEverywhere(ctx context.Context) error {
	known, err := r.known(ctx)
	if err != nil {
		return err
	}
	for _, m := range r.members {
		served, err := m.served(ctx)
		if err != nil {
			return err
		}
		held := map[aggregate.Kind]bool{}
		for _, s := range known[m.name].Details {
			if s.State == aggregate.NotServed && s.Objects == 0 {
				continue
			}
			path, ok := served[s.Version+" "+string(s.Kind)]
			if !ok || s.State != aggregate.Synced {
				return fmt.Errorf("%s of %s is %s at %q: %s", s.Kind, m.name, s.State, s.Version, s.Reason)
			}
			held[s.Kind] = true
			kind, _, _ := strings.Cut(string(s.Kind), ".")
			if err := r.compare(ctx, m, path, kind); err != nil {
				return err
			}
		}
		for at := range served {
			_, kind, _ := strings.Cut(at, " ")
			if !held[aggregate.Kind(kind)] && !slices.Contains(notKept, kind) {
				return fmt.Errorf("%s of %s is not held", kind, m.name)
			}
		}
	}
	return nil
}

// notKept is what is kept only where somebody asks for it.
var notKept = []string{"Event", "Event.events.k8s.io", "Lease.coordination.k8s.io"}

// served is what the member serves, by version and kind: the paths of lists.
func (m *member) served(ctx context.Context) (map[string]string, error) {
	out := map[string]string{}
	roots := []string{"/api/v1"}
	raw, err := get(ctx, m.direct, m.host+"/apis")
	if err != nil {
		return nil, err
	}
	var groups metav1.APIGroupList
	if err := json.Unmarshal(raw, &groups); err != nil {
		return nil, err
	}
	for _, g := range groups.Groups {
		for _, v := range g.Versions {
			roots = append(roots, "/apis/"+v.GroupVersion)
		}
	}
	for _, root := range roots {
		raw, err := get(ctx, m.direct, m.host+root)
		if err != nil {
			return nil, err
		}
		var list metav1.APIResourceList
		if err := json.Unmarshal(raw, &list); err != nil {
			return nil, err
		}
		group, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(root, "/apis/"), "/api/v1"), "/")
		for _, a := range list.APIResources {
			if !strings.Contains(a.Name, "/") && slices.Contains(a.Verbs, "list") && slices.Contains(a.Verbs, "watch") {
				out[list.GroupVersion+" "+string(aggregate.MakeKind(a.Kind, group))] = root + "/" + a.Name
			}
		}
	}
	return out, nil
}

// known is what federator knows of the members, by name.
func (r *rig) known(ctx context.Context) (map[string]clusterinformers.MemberStatus, error) {
	body, err := get(ctx, r.plain, "http://"+r.addr+"/members?details=true")
	if err != nil {
		return nil, err
	}
	var a struct {
		Members []clusterinformers.MemberStatus `json:"members"`
	}
	if err := json.Unmarshal(body, &a); err != nil {
		return nil, err
	}
	out := map[string]clusterinformers.MemberStatus{}
	for _, m := range a.Members {
		out[m.Name] = m
	}
	if len(out) != len(r.members) {
		return nil, errors.New("not all members are known")
	}
	return out, nil
}

var relistsLine = regexp.MustCompile(`(?m)^federator_member_relists_total\{cause="([^"]+)",member="[^"]+"\} (\d+)$`)

// lists is what was listed of the members by this process, by cause.
func (r *rig) lists(ctx context.Context) (map[string]int, error) {
	body, err := get(ctx, r.scraper, "http://"+r.serve+"/metrics")
	if err != nil {
		return nil, err
	}
	out := map[string]int{}
	for _, m := range relistsLine.FindAllSubmatch(body, -1) {
		n, err := strconv.Atoi(string(m[2]))
		if err != nil {
			return nil, err
		}
		out[string(m[1])] += n
	}
	if len(out) == 0 && !bytes.Contains(body, []byte("federator_member_connected")) {
		return nil, errors.New("no metrics of members")
	}
	return out, nil
}
