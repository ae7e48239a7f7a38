//! The common name and the URIs in a certificate, without a library for certificates: the one that
//! verifies them does not hand it out.
//!
//! DER is nested `tag length value`; the subject is the sixth field of the part that is signed (the
//! fifth if the version is left out), a list of sets of (object id, text). Other names of the
//! subject, URIs among them, are an extension: (object id, whether it is critical, an octet
//! string).

/// `2.5.4.3`, common name.
const COMMON_NAME: [u8; 3] = [0x55, 0x04, 0x03];
/// `2.5.29.17`, alternative names of the subject.
const ALTERNATIVE_NAMES: [u8; 3] = [0x55, 0x1d, 0x11];
const OCTETS: u8 = 0x04;
const URI: u8 = 0x86;
const EXTENSIONS: u8 = 0xa3;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OBJECT_ID: u8 = 0x06;
const VERSION: u8 = 0xa0;

/// One element: its tag, its contents, and what follows it.
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = der.split_first()?;
    let (&first, mut rest) = rest.split_first()?;
    let mut len = usize::from(first);
    if first & 0x80 != 0 {
        let (digits, after) = rest.split_at_checked(usize::from(first & 0x7f))?;
        if digits.len() > 4 {
            return None;
        }
        len = digits.iter().fold(0, |len, digit| len << 8 | usize::from(*digit));
        rest = after;
    }
    let (contents, rest) = rest.split_at_checked(len)?;
    Some((tag, contents, rest))
}

fn expect(tag: u8, der: &[u8]) -> Option<(&[u8], &[u8])> {
    element(der).filter(|(found, ..)| *found == tag).map(|(_, contents, rest)| (contents, rest))
}

/// The subject's common name, the last one if there are several.
pub(super) fn common_name(certificate: &[u8]) -> Option<String> {
    let (mut subject, _) = expect(SEQUENCE, from_subject_on(certificate)?)?;
    let mut name = None;
    while let Some((mut set, rest)) = expect(SET, subject) {
        while let Some((pair, more)) = expect(SEQUENCE, set) {
            let (id, value) = expect(OBJECT_ID, pair)?;
            if id == COMMON_NAME {
                name = Some(String::from_utf8_lossy(element(value)?.1).into_owned());
            }
            set = more;
        }
        subject = rest;
    }
    name
}

/// The part that is signed, from the subject on.
fn from_subject_on(certificate: &[u8]) -> Option<&[u8]> {
    let (certificate, _) = expect(SEQUENCE, certificate)?;
    let (signed, _) = expect(SEQUENCE, certificate)?;
    let (first, _, after_first) = element(signed)?;
    let mut fields = if first == VERSION { after_first } else { signed };
    // Serial number, signature algorithm, issuer, validity.
    for _ in 0..4 {
        fields = element(fields)?.2;
    }
    Some(fields)
}

/// The URIs among the subject's other names, in their order.
pub(super) fn uris(certificate: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    // What cannot be read has no names.
    let _ = visit_uris(certificate, &mut |uri| found.push(uri));
    found
}

fn visit_uris(certificate: &[u8], visit: &mut dyn FnMut(String)) -> Option<()> {
    let mut fields = from_subject_on(certificate)?;
    let mut extensions = loop {
        let (tag, contents, rest) = element(fields)?;
        if tag == EXTENSIONS {
            break expect(SEQUENCE, contents)?.0;
        }
        fields = rest;
    };
    while let Some((extension, rest)) = expect(SEQUENCE, extensions) {
        let (id, mut value) = expect(OBJECT_ID, extension)?;
        if id == ALTERNATIVE_NAMES {
            if element(value)?.0 != OCTETS {
                value = element(value)?.2;
            }
            let (octets, _) = expect(OCTETS, value)?;
            let (mut names, _) = expect(SEQUENCE, octets)?;
            while let Some((tag, name, more)) = element(names) {
                if tag == URI {
                    visit(String::from_utf8_lossy(name).into_owned());
                }
                names = more;
            }
        }
        extensions = rest;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_name_and_survives_every_truncation() {
        let mut params = rcgen::CertificateParams::new(vec!["example.org".to_owned()]).unwrap();
        params.distinguished_name.push(rcgen::DnType::OrganizationName, "An Organization");
        params.distinguished_name.push(rcgen::DnType::CommonName, "täglich");
        for uri in ["spiffe://example.org/a", "urn:b"] {
            let uri = rcgen::SanType::URI(uri.try_into().unwrap());
            params.subject_alt_names.push(uri);
        }
        let key = rcgen::KeyPair::generate().unwrap();
        let der = params.self_signed(&key).unwrap().der().to_vec();
        assert_eq!(common_name(&der).as_deref(), Some("täglich"));
        assert_eq!(uris(&der), ["spiffe://example.org/a", "urn:b"]);
        for len in 0..der.len() {
            assert_eq!(common_name(&der[..len]), None);
            assert!(uris(&der[..len]).is_empty());
        }
        for at in 0..der.len() {
            let mut broken = der.clone();
            broken[at] ^= 0xff;
            let _ = (common_name(&broken), uris(&broken));
        }
    }
}
