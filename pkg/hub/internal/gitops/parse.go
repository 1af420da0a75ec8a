package gitops

import (
	"cmp"
	"encoding/json"
	"net/url"
	"strings"

	"federator.dev/federator/pkg/aggregate"
)

// claim is what a trusted object lists.
type claim struct {
	owner   Owner
	source  aggregate.Ref // of Flux, whose URL is the repository; zero where there is none
	targets []target
}

// target is an object of a cluster: of the member of that name, or of the one whose API server
// has that URL.
type target struct {
	member, server  string
	kind            aggregate.Kind
	namespace, name string
}

// inCluster is how Applications name the cluster that they are in.
const (
	inClusterServer = "https://kubernetes.default.svc"
	inClusterName   = "in-cluster"
)

// application is what is read of an Application.
type application struct {
	Spec struct {
		Destination struct{ Server, Name string }
		Source      *appSource
		Sources     []appSource
	}
	Status struct {
		Resources []struct{ Group, Kind, Namespace, Name string }
	}
}

type appSource struct{ RepoURL, Path, Chart string }

// parse returns what an object of a trusted kind lists. An object that is not understood lists
// nothing, and neither does one whose cluster is not known for sure.
func parse(ref aggregate.Ref, body []byte) claim {
	c := claim{owner: Owner{Ref: ref}}
	if ref.Kind == Application {
		c.parseApplication(body)
	} else {
		c.parseFlux(body)
	}
	return c
}

func (c *claim) parseApplication(body []byte) {
	var a application
	if json.Unmarshal(body, &a) != nil {
		return
	}
	sources := a.Spec.Sources
	if len(sources) == 0 && a.Spec.Source != nil {
		sources = []appSource{*a.Spec.Source}
	}
	var repositories, paths []string
	for _, s := range sources {
		repositories = append(repositories, s.RepoURL)
		paths = append(paths, cmp.Or(s.Path, s.Chart))
	}
	c.owner.Repository, c.owner.Path = strings.Join(repositories, ", "), strings.Join(paths, ", ")
	var at target
	switch d := a.Spec.Destination; {
	case normalize(d.Server) == inClusterServer, d.Server == "" && d.Name == inClusterName:
		at.member = c.owner.Ref.Member
	case d.Server != "":
		at.server = normalize(d.Server)
	}
	if at.member == "" && at.server == "" {
		return
	}
	for _, r := range a.Status.Resources {
		at.kind, at.namespace, at.name = kindOf(r.Kind, r.Group), r.Namespace, r.Name
		c.targets = append(c.targets, at)
	}
}

// flux is what is read of a Kustomization or a HelmRelease.
type flux struct {
	Spec struct {
		KubeConfig *struct{}
		Path       string
		SourceRef  *fluxRef
		Chart      *struct {
			Spec struct {
				Chart     string
				SourceRef *fluxRef
			}
		}
		ChartRef *fluxRef
	}
	Status struct {
		Inventory *struct {
			Entries []struct{ ID string }
		}
	}
}

type fluxRef struct{ Kind, Namespace, Name string }

func (c *claim) parseFlux(body []byte) {
	var f flux
	if json.Unmarshal(body, &f) != nil {
		return
	}
	from := cmp.Or(f.Spec.SourceRef, f.Spec.ChartRef)
	c.owner.Path = f.Spec.Path
	if f.Spec.Chart != nil {
		from, c.owner.Path = f.Spec.Chart.Spec.SourceRef, f.Spec.Chart.Spec.Chart
	}
	if from != nil {
		c.source = aggregate.Ref{
			Member: c.owner.Ref.Member, Kind: aggregate.Kind(from.Kind + ".source.toolkit.fluxcd.io"),
			Namespace: cmp.Or(from.Namespace, c.owner.Ref.Namespace), Name: from.Name,
		}
	}
	if f.Spec.KubeConfig != nil || f.Status.Inventory == nil {
		return
	}
	for _, e := range f.Status.Inventory.Entries {
		if t, ok := parseEntry(e.ID); ok {
			t.member = c.owner.Ref.Member
			c.targets = append(c.targets, t)
		}
	}
}

// parseEntry reads an id of an inventory: <namespace>_<name>_<group>_<kind>, in which __ in a
// name stands for a colon, as cli-utils' ObjMetadata has it.
func parseEntry(id string) (t target, ok bool) {
	namespace, rest, ok := strings.Cut(id, "_")
	if !ok {
		return t, false
	}
	n := strings.LastIndex(rest, "_")
	if n < 0 {
		return t, false
	}
	rest, kind := rest[:n], rest[n+1:]
	n = strings.LastIndex(rest, "_")
	if n < 0 {
		return t, false
	}
	name, group := rest[:n], rest[n+1:]
	if name == "" || kind == "" {
		return t, false
	}
	return target{kind: kindOf(kind, group), namespace: namespace, name: strings.ReplaceAll(name, "__", ":")}, true
}

func kindOf(kind, group string) aggregate.Kind {
	if group == "" {
		return aggregate.Kind(kind)
	}
	return aggregate.Kind(kind + "." + group)
}

// normalize returns one form of a server's URL.
func normalize(server string) string {
	u, err := url.Parse(server)
	if err != nil || u.Host == "" {
		return server
	}
	host := strings.ToLower(u.Host)
	if u.Scheme == "https" {
		host = strings.TrimSuffix(host, ":443")
	}
	return strings.ToLower(u.Scheme) + "://" + host + strings.TrimRight(u.Path, "/")
}

// sourceURL returns the URL of a source of Flux, "" where it has none.
func sourceURL(body []byte) string {
	var s struct {
		Spec struct{ URL, Endpoint, BucketName string }
	}
	if json.Unmarshal(body, &s) != nil {
		return ""
	}
	return cmp.Or(s.Spec.URL, strings.Trim(s.Spec.Endpoint+"/"+s.Spec.BucketName, "/"))
}
