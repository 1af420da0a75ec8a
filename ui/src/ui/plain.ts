// Characters that are not seen, or that turn the direction of what follows: with them a text, or a diff that somebody
// is to approve, looks like another one.
const unseen = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

// plain is a text in which such characters are told by their code.
export function plain(text: string): string {
  return text.replace(unseen, (c) => `⟨U+${c.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`);
}
