package sim

import (
	"encoding/json"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

const metadataList = "PartialObjectMetadataList"

// metadataAccepted returns the media type in which a client wants lists of metadata before anything
// else, "" for none.
func metadataAccepted(r *http.Request) string {
	first, _, _ := strings.Cut(r.Header.Get("Accept"), ",")
	media, params, _ := strings.Cut(first, ";")
	for param := range strings.SplitSeq(params, ";") {
		if strings.TrimSpace(param) != "as="+metadataList {
			continue
		}
		if media = strings.TrimSpace(media); media == runtime.ContentTypeProtobuf || media == runtime.ContentTypeJSON {
			return media
		}
	}
	return ""
}

// writeMetadata answers a LIST with the metadata alone.
func (c *call) writeMetadata(w http.ResponseWriter, r *http.Request, p *page, media string) error {
	list := &metav1.PartialObjectMetadataList{ListMeta: *p.meta(), Items: make([]metav1.PartialObjectMetadata, len(p.items))}
	for i, it := range p.items {
		raw, err := c.table.encode(it)
		if err != nil {
			return err
		}
		if item := &list.Items[i]; c.table.builtin {
			err = item.Unmarshal(raw) // all messages begin with their metadata
		} else {
			err = json.Unmarshal(raw, item)
		}
		if err != nil {
			return err
		}
	}
	var body []byte
	if media == runtime.ContentTypeProtobuf {
		raw, err := list.Marshal()
		if err != nil {
			return err
		}
		codec := kindCodec{kind: Kind{Kind: metadataList, Group: metav1.GroupName}}
		if body, err = codec.envelope(raw, "v1"); err != nil {
			return err
		}
	} else {
		body = mustJSON(withKind(list, metadataList, "meta.k8s.io/v1"))
	}
	writeBody(w, r, http.StatusOK, media, body)
	return nil
}
