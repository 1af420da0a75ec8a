package versus

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"federator.dev/federator/pkg/policy/internal/value"
)

func (f *fleet) group(member, label string) string {
	if label == "" {
		return ""
	}
	group, _ := text(f.tree.Field("members").Field(member).Field("labels").Field(label))
	return group
}

// peer reports whether the subject is compared with a member.
func (s *subject) peer(member, label string) bool {
	if member == s.member || label == "" {
		return member != s.member
	}
	own, _ := text(s.labels.Field(label))
	return s.fleet.group(member, label) == own
}

// namesakes are the objects of the subject's name, by member.
func (s *subject) namesakes(kind string) []value.Value {
	at := s.fleet.tree.Field("by_name").Field(kind).Field(s.namespace).Field(s.name)
	if at.Kind() != value.Object {
		return nil
	}
	return at.Pairs()
}

// running is a container and its image.
type running struct{ name, image string }

func images(list []running, pod value.Value) []running {
	for _, field := range [...]string{"initContainers", "containers"} {
		for _, c := range elems(pod.Field(field)) {
			name, okName := text(c.Field("name"))
			image, ok := text(c.Field("image"))
			if okName && ok {
				list = append(list, running{name, image})
			}
		}
	}
	return list
}

// differ reports whether two images are different versions of one.
func (i image) differs(other image) bool {
	if i.hasDigest && other.hasDigest {
		return i.digest != other.digest
	}
	return i.tag != "" && other.tag != "" && i.tag != other.tag
}

func (i image) version() string { return cmp.Or(i.tag, i.digest) }

// elsewhere is an image of another member.
type elsewhere struct{ image, member string }

func imageSkew(params value.Value) rule {
	group := params.Field("group").Str()
	return func(s *subject, out *findings) {
		siblings := s.namesakes(s.kind)
		if len(siblings) < 4 { // its own alone
			return
		}
		var room [8]running
		var of [8]running
		for _, own := range images(room[:0], podSpec(s)) {
			var differing []elsewhere
			parsed, done := image{}, false
			for i := 0; i < len(siblings); i += 2 {
				for _, other := range images(of[:0], siblings[i+1].Field("spec").Field("template").Field("spec")) {
					if other.name != own.name || other.image == own.image {
						continue
					}
					if !done {
						parsed, done = parseImage(own.image), true
					}
					if parsed.differs(parseImage(other.image)) && s.peer(siblings[i].Str(), group) {
						differing = append(differing, elsewhere{other.image, siblings[i].Str()})
					}
				}
			}
			if differing != nil {
				reportSkew(out, own, differing)
			}
		}
	}
}

func reportSkew(out *findings, own running, differing []elsewhere) {
	slices.SortFunc(differing, func(a, b elsewhere) int {
		return cmp.Or(cmp.Compare(a.image, b.image), cmp.Compare(a.member, b.member))
	})
	var versions, members []string
	list := details(nil).text("container", own.name).text("image", own.image).key("others")
	list = append(list, '[')
	for i, d := range differing {
		versions, members = append(versions, parseImage(d.image).version()), append(members, d.member)
		if i > 0 {
			list = append(list, ',')
		}
		list = append(list, details(nil).text("image", d.image).text("member", d.member).end()...)
	}
	msg := "container " + own.name + " runs " + parseImage(own.image).version() + " here and " + few(sorted(versions)) + " in " + few(sorted(members))
	out.add(msg, append(list, "]}"...))
}

func minRegions(params value.Value) rule {
	mark, label, required := params.Field("mark").Str(), params.Field("region").Str(), params.Field("regions").Int()
	return func(s *subject, out *findings) {
		if _, marked := text(s.object.Field("metadata").Field("labels").Field(mark)); mark != "" && !marked {
			return
		}
		var room [8]string
		regions := room[:0]
		siblings := s.namesakes("Deployment.apps")
		for i := 0; i < len(siblings); i += 2 {
			if replicas := siblings[i+1].Field("spec").Field("replicas"); replicas.IsNumber() && replicas.Int() == 0 {
				continue
			}
			if region := s.fleet.group(siblings[i].Str(), label); region != "" && !slices.Contains(regions, region) {
				regions = append(regions, region)
			}
		}
		if len(regions) >= required {
			return
		}
		slices.Sort(regions)
		number, named := "none", ""
		if len(regions) > 0 {
			number, named = strconv.Itoa(len(regions)), ": "+few(regions)
		}
		out.add("runs in "+number+" of "+strconv.Itoa(required)+" regions"+named, details(nil).texts("regions", regions).int("required", required).end())
	}
}

// stated says which owners members name.
func stated(owners map[string][]string) string {
	var list []string
	for _, owner := range slices.Sorted(maps.Keys(owners)) {
		list = append(list, owner+" in "+few(owners[owner]))
	}
	return strings.Join(list, "; ")
}

func ownersDetails(own string, others map[string][]string) []byte {
	list := details(nil)
	for _, owner := range slices.Sorted(maps.Keys(others)) {
		list = list.texts(owner, others[owner])
	}
	if list == nil {
		list = details("{")
	}
	return append(details(nil).key("others"), list.end()...).text("owner", own).end()
}

func namespaceOwner(params value.Value) rule {
	label, exempt, group := params.Field("label").Str(), strs(params.Field("exempt")), params.Field("group").Str()
	ownerOf := func(object value.Value) string {
		owner, _ := text(object.Field("metadata").Field("labels").Field(label))
		return owner
	}
	return func(s *subject, out *findings) {
		if slices.ContainsFunc(exempt, func(p string) bool { return glob(p, s.name, '.') }) {
			return
		}
		own := ownerOf(s.object)
		var others map[string][]string
		siblings := s.namesakes("Namespace")
		for i := 0; i < len(siblings); i += 2 {
			if owner := ownerOf(siblings[i+1]); owner != "" && owner != own && s.peer(siblings[i].Str(), group) {
				if others == nil {
					others = map[string][]string{}
				}
				others[owner] = append(others[owner], siblings[i].Str())
			}
		}
		switch {
		case own == "" && others == nil:
			out.add("label "+label+" is missing", ownersDetails(own, others))
		case own == "":
			out.add("label "+label+" is missing; it is "+stated(others), ownersDetails(own, others))
		case others != nil:
			out.add("owner is "+own+" here and "+stated(others), ownersDetails(own, others))
		}
	}
}

func unusedNamespace(params value.Value) rule {
	days, annotation := params.Field("days").Int(), params.Field("annotation").Str()
	msg := "nothing runs in it, and it is more than " + strconv.Itoa(days) + " days old"
	return func(s *subject, out *findings) {
		if s.kind != "Namespace" || strings.HasPrefix(s.name, "kube-") || s.name == "default" {
			return
		}
		meta := s.object.Field("metadata")
		if holds(meta.Field("annotations").Field(annotation)) || !s.fleet.older(meta.Field("creationTimestamp"), time.Duration(days)*24*time.Hour) {
			return
		}
		if !s.fleet.view("federator.tenancy.unused_namespace", "used").Field(s.member + " " + s.name).Defined() {
			out.add(msg, nil)
		}
	}
}

var ordinal = regexp.MustCompile(`-[0-9]+$`)

func orphanedPVC(params value.Value) rule {
	labels := strs(params.Field("labels"))
	return func(s *subject, out *findings) {
		status := s.object.Field("status")
		if s.kind != "PersistentVolumeClaim" || !is(status.Field("phase"), "Bound") {
			return
		}
		has := s.object.Field("metadata").Field("labels")
		if slices.ContainsFunc(labels, func(key string) bool { return holds(has.Field(key)) }) {
			return
		}
		claim := s.member + "/" + s.namespace + "/" + s.name
		if s.fleet.view("federator.hygiene.orphaned_pvc", "used").Field(claim).Defined() {
			return
		}
		if at := ordinal.FindStringIndex(claim); at != nil && s.fleet.view("federator.hygiene.orphaned_pvc", "made").Field(claim[:at[0]]).Defined() {
			return
		}
		msg := "nothing uses the claim"
		if size, ok := text(status.Field("capacity").Field("storage")); ok {
			msg += " of " + size
		}
		volume, _ := text(s.object.Field("spec").Field("volumeName"))
		out.add(msg, details(nil).text("volume", volume).end())
	}
}

func hostsOf(s *subject, hosts []string) []string {
	spec := s.object.Field("spec")
	if s.kind == "HTTPRoute.gateway.networking.k8s.io" {
		for _, h := range elems(spec.Field("hostnames")) {
			if host, _ := text(h); host != "" && !slices.Contains(hosts, host) {
				hosts = append(hosts, host)
			}
		}
		return hosts
	}
	for _, r := range elems(spec.Field("rules")) {
		if host, _ := text(r.Field("host")); host != "" && !slices.Contains(hosts, host) {
			hosts = append(hosts, host)
		}
	}
	return hosts
}

func uniqueHost(params value.Value) rule {
	shared, labels := strs(params.Field("sharedHosts")), strs(params.Field("sharingLabels"))
	sharing := func(s *subject, member string) bool {
		of := s.fleet.tree.Field("members").Field(member).Field("labels")
		return slices.ContainsFunc(labels, func(label string) bool {
			own := s.labels.Field(label)
			return own.Defined() && value.Equal(own, of.Field(label))
		})
	}
	return func(s *subject, out *findings) {
		var room [8]string
		for _, host := range hostsOf(s, room[:0]) {
			if slices.ContainsFunc(shared, func(p string) bool { return glob(p, host, '.') }) {
				continue
			}
			var refs []value.Value
			var places []string
			for _, claim := range elems(s.fleet.view("federator.network.unique_host", "hosts").Field(host)) {
				ref := claim.Field("ref")
				member, namespace := ref.Field("member").Str(), ref.Field("namespace").Str()
				switch {
				case member == s.member && namespace != s.namespace:
					places = append(places, "namespace "+namespace)
				case member != s.member && !sharing(s, member):
					places = append(places, member)
				default:
					continue
				}
				refs = append(refs, ref)
			}
			if refs != nil {
				text, _ := value.ArrayOf(refs).JSON()
				out.add("host "+host+" is also served from "+few(sorted(places)), append(details(nil).text("host", host).key("others"), text...).end())
			}
		}
	}
}
