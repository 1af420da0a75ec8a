package versus

import (
	"slices"
	"strings"

	"federator.dev/federator/pkg/policy/internal/value"
)

// image is a reference to an image, taken apart.
type image struct {
	name        string // without tag and digest
	tag, digest string
	hasDigest   bool
}

func parseImage(ref string) (i image) {
	i.name, i.digest, i.hasDigest = strings.Cut(ref, "@")
	i.digest, _, _ = strings.Cut(i.digest, "@")
	last := strings.LastIndexByte(i.name, '/') + 1
	if at := strings.IndexByte(i.name[last:], ':'); at >= 0 {
		i.tag, _, _ = strings.Cut(i.name[last+at+1:], ":")
		i.name = strings.TrimSuffix(i.name, ":"+i.tag)
	} else if !i.hasDigest {
		i.tag = "latest"
	}
	return i
}

// full is the name with its registry.
func (i image) full() string {
	if repository, ok := strings.CutPrefix(i.name, "index.docker.io/"); ok {
		return "docker.io/" + repository
	}
	host, _, below := strings.Cut(i.name, "/")
	switch {
	case !below:
		return "docker.io/library/" + i.name
	case host == "localhost" || strings.ContainsAny(host, ".:"):
		return i.name
	}
	return "docker.io/" + i.name
}

// imageRules are the parameters of image_registry.
type imageRules struct {
	registries, below        []string
	movingTags, placeholders []string
	digest                   bool
}

func newImageRules(params value.Value) *imageRules {
	r := &imageRules{
		movingTags: strs(params.Field("movingTags")), placeholders: strs(params.Field("placeholders")),
		digest: params.Field("digest").IsTrue(),
	}
	for _, registry := range strs(params.Field("registries")) {
		registry = strings.TrimSuffix(registry, "/")
		r.registries, r.below = append(r.registries, registry), append(r.below, registry+"/")
	}
	return r
}

func (r *imageRules) known(name string) bool {
	return slices.Contains(r.registries, name) || slices.ContainsFunc(r.below, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

func (r *imageRules) check(out *findings, what, name, ref string) {
	if ref == "" || slices.Contains(r.placeholders, ref) {
		return
	}
	i := parseImage(ref)
	if len(r.registries) > 0 {
		if full := i.full(); !r.known(full) {
			out.add(what+name+" uses an image from a registry that is not allowed: "+ref, details(nil).text("image", ref).text("name", full).end())
		}
	}
	if i.hasDigest {
		return
	}
	if slices.Contains(r.movingTags, i.tag) {
		out.add(what+name+" uses an image with the mutable tag "+i.tag+": "+ref, details(nil).text("image", ref).text("tag", i.tag).end())
	}
	if r.digest {
		out.add(what+name+" uses an image without a digest: "+ref, details(nil).text("image", ref).end())
	}
}

func imageRegistry(params value.Value) rule {
	r := newImageRules(params)
	return func(s *subject, out *findings) {
		if templated(s) {
			return
		}
		pod := podSpec(s)
		for _, list := range containerLists {
			for _, c := range elems(pod.Field(list)) {
				ref, _ := text(c.Field("image"))
				r.check(out, "container ", nameOf(c), ref)
			}
		}
		for _, volume := range elems(pod.Field("volumes")) {
			if ref, _ := text(volume.Field("image").Field("reference")); ref != "" {
				r.check(out, "volume ", nameOf(volume), ref)
			}
		}
	}
}
