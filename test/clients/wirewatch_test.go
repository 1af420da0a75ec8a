package clients

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"

	"golang.org/x/net/websocket"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// event is one of a watch.
type event struct {
	Type   string
	Object json.RawMessage
}

// tableWatch watches pods as a Table, until all that are there have come.
func tableWatch(include string) act {
	return withClients(func(ctx context.Context, t *target, c *clients) (out answer, err error) {
		resp, err := request{path: "/api/v1/pods?watch=true&includeObject=" + include, accept: tableAccept}.open(ctx, t, c)
		if err != nil {
			return out, err
		}
		defer resp.Body.Close()
		want, columns, kinds := 4, "", map[string]bool{}
		if t.site == "" {
			want *= len(sites)
		}
		for events := json.NewDecoder(resp.Body); len(out.lines) < want; {
			var e event
			if err := events.Decode(&e); err != nil {
				return out, err
			}
			var table metav1.Table
			if err := json.Unmarshal(e.Object, &table); err != nil {
				return out, err
			}
			columns += fmt.Sprint(" ", len(table.ColumnDefinitions))
			for _, r := range table.Rows {
				var o metav1.PartialObjectMetadata
				if err := json.Unmarshal(r.Object.Raw, &o); err != nil {
					return out, err
				}
				kinds[o.Kind] = true
				out.lines = append(out.lines, o.Namespace+"/"+o.Name+" "+o.Labels["site"])
			}
		}
		first, rest, _ := strings.Cut(strings.TrimSpace(columns), " ")
		out.text = fmt.Sprintf("%s columns with the first event, then %s", first, strings.Join(strings.Fields(strings.ReplaceAll(rest, first, "more")), ""))
		if strings.Trim(rest, " 0") == "" {
			out.text = first + " columns with the first event only"
		}
		for k := range kinds {
			out.text += ", each with its " + k
		}
		return out, nil
	})
}

// socketWatch watches a namespace over a WebSocket, as browsers do, and waits for what
// is created.
func socketWatch(protocols ...string) act {
	return withClients(func(ctx context.Context, t *target, c *clients) (answer, error) {
		u, err := url.Parse(strings.Replace(t.config.Host, "https://", "wss://", 1) + "/api/v1/namespaces/" + t.ns("depot") + "/configmaps?watch=1")
		if err != nil {
			return answer{}, err
		}
		own, err := rest.TLSConfigFor(t.config)
		if err != nil {
			return answer{}, err
		}
		own.NextProtos = []string{"http/1.1"}
		config := &websocket.Config{
			Location: u, Origin: &url.URL{Scheme: "https", Host: u.Host}, Version: websocket.ProtocolVersionHybi13,
			TlsConfig: own, Protocol: protocols,
		}
		conn, err := config.DialContext(ctx)
		if err != nil {
			return answer{text: code(err.Error())}, nil
		}
		defer conn.Close()
		name, remove, err := t.create(ctx)
		if err != nil {
			return answer{}, err
		}
		defer remove()
		chosen := strings.Join(conn.Config().Protocol, " ")
		for {
			var text string
			if err := websocket.Message.Receive(conn, &text); err != nil {
				return answer{}, err
			}
			form := "text"
			if raw, err := base64.StdEncoding.DecodeString(text); err == nil {
				text, form = string(raw), "base64"
			}
			var e event
			if err := json.Unmarshal([]byte(text), &e); err != nil {
				return answer{}, err
			}
			var o metav1.PartialObjectMetadata
			if err := json.Unmarshal(e.Object, &o); err != nil {
				return answer{}, err
			}
			if o.Name == name {
				return answer{text: fmt.Sprintf("%s as %s, protocol %s", e.Type, form, code(chosen))}, nil
			}
		}
	})
}

// bookmarked watches from a list on, and waits for what is created.
var bookmarked = withClients(func(ctx context.Context, t *target, c *clients) (answer, error) {
	path := "/api/v1/namespaces/" + t.ns("depot") + "/configmaps"
	list, err := request{path: path}.send(ctx, t, c)
	if err != nil {
		return answer{}, err
	}
	var l metav1.PartialObjectMetadataList
	if err := json.Unmarshal(list.body, &l); err != nil {
		return answer{}, err
	}
	resp, err := request{path: path + "?watch=true&allowWatchBookmarks=true&resourceVersion=" + l.ResourceVersion}.open(ctx, t, c)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	name, remove, err := t.create(ctx)
	if err != nil {
		return answer{}, err
	}
	defer remove()
	for events := json.NewDecoder(resp.Body); ; {
		var e event
		if err := events.Decode(&e); err != nil {
			return answer{}, err
		}
		var o metav1.PartialObjectMetadata
		if err := json.Unmarshal(e.Object, &o); err != nil {
			return answer{}, err
		}
		if o.Name == name {
			return answer{text: e.Type}, nil
		}
	}
})
