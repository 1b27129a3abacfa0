//! Tests of the development authority.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use peeklock_tls::authority::{Authority, AuthorityError, PreparedFiles};
use rcgen::{
    BasicConstraints, CertificateParams, CidrSubnet, GeneralSubtree, IsCa, Issuer, KeyPair,
    NameConstraints, date_time_ymd,
};

use super::pair::{Server, config, directory, run, shown, talk, trusting_file};

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// TLS-05: the authority is created on first use, for the names of this machine and the given ones.
/// Its keys are readable only by their owner.
#[test]
fn an_authority_is_made_on_first_use() {
    run(async {
        let authority = Authority::at(directory("development").join("data/tls"));
        assert!(authority.kept().unwrap().is_none());
        let made = authority.prepare(&names(&["Bus.Test", "10.0.0.7", "[fd00::7]"])).unwrap();
        assert_eq!(made, PreparedFiles::Authority);
        assert_eq!(authority.prepare(&names(&["bus.test"])).unwrap(), PreparedFiles::Nothing);
        assert_eq!(mode(authority.directory()), 0o700);
        for (file, expected) in [
            ("authority.pem", 0o644),
            ("authority.key", 0o600),
            ("server.pem", 0o644),
            ("server.key", 0o600),
        ] {
            assert_eq!(mode(&authority.directory().join(file)), expected, "{file}");
        }
        assert_eq!(std::fs::read_dir(authority.directory()).unwrap().count(), 4);
        let kept = authority.kept().unwrap().unwrap();
        assert_eq!(kept.certificate.issuer, kept.authority.subject);
        assert_eq!(kept.certificate.dns_names, ["localhost", "bus.test"]);
        let server = Server::start(authority.config()).await;
        let client = trusting_file(&authority.authority_file());
        for host in ["localhost", "127.0.0.1", "::1", "[::1]", "bus.test", "10.0.0.7", "fd00::7"] {
            let mut stream = client.connect(host, server.socket().await).await.unwrap();
            talk(&mut stream).await.unwrap();
        }
        assert!(client.connect("other.test", server.socket().await).await.is_err());
    });
}

/// TLS-05: with the authority's key one can create certificates only for its own names and the
/// names below them.
#[test]
fn an_authority_vouches_for_its_own_names_alone() {
    run(async {
        let authority = Authority::at(directory("constrained"));
        authority.prepare(&names(&["bus.test"])).unwrap();
        let text = |file: &str| std::fs::read_to_string(authority.directory().join(file)).unwrap();
        let key = KeyPair::from_pem(&text("authority.key")).unwrap();
        let issuer = Issuer::from_ca_cert_pem(&text("authority.pem"), key).unwrap();
        let client = trusting_file(&authority.authority_file());
        for (name, is_trusted) in [
            ("bus.test", true),
            ("eu.bus.test", true),
            ("minibus.test", false),
            ("bank.test", false),
            ("bus.test.evil", false),
            ("10.0.0.7", false),
        ] {
            let directory = directory("constrained-files");
            let key = KeyPair::generate().unwrap();
            let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
            let certificate = params.signed_by(&key, &issuer).unwrap();
            std::fs::write(directory.join("server.pem"), certificate.pem()).unwrap();
            std::fs::write(directory.join("server.key"), key.serialize_pem()).unwrap();
            let server = Server::start(config(&directory)).await;
            let connected = client.connect(name, server.socket().await).await;
            assert_eq!(connected.is_ok(), is_trusted, "{name}");
        }
    });
}

/// TLS-05: an authority is trustworthy only if it is limited to names and addresses of hosts, and
/// cannot sign for other authorities.
#[test]
fn an_unlimited_authority_is_not_trustworthy() {
    let authority = Authority::at(directory("foreign"));
    authority.prepare(&names(&["bus.test"])).unwrap();
    let own = std::fs::read_to_string(authority.authority_file()).unwrap();
    let examined = authority.trustworthy().unwrap().unwrap();
    assert_eq!(examined.names, ["localhost", "bus.test", "127.0.0.1", "::1"]);
    assert_eq!(examined.pem, own);

    let name = || GeneralSubtree::DnsName("localhost".to_owned());
    let network =
        |bits| GeneralSubtree::IpAddress(CidrSubnet::from_addr_prefix([127, 0, 0, 1].into(), bits));
    let made = |permitted: Option<Vec<GeneralSubtree>>, path: BasicConstraints| {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(path);
        params.name_constraints = permitted.map(|permitted_subtrees| NameConstraints {
            permitted_subtrees,
            excluded_subtrees: Vec::new(),
        });
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().pem()
    };
    let none_below = || BasicConstraints::Constrained(0);
    let limited = made(Some(vec![name(), network(32)]), none_below());
    let unlimited = [
        made(None, none_below()),
        made(Some(vec![name()]), none_below()),
        made(Some(vec![network(32)]), none_below()),
        made(Some(vec![name(), network(8)]), none_below()),
        made(Some(vec![GeneralSubtree::DnsName(String::new()), network(32)]), none_below()),
        made(Some(vec![name(), network(32)]), BasicConstraints::Unconstrained),
        made(Some(vec![name(), network(32)]), BasicConstraints::Constrained(1)),
        limited.clone() + &made(None, none_below()),
    ];
    for pem in unlimited {
        std::fs::write(authority.authority_file(), pem).unwrap();
        assert!(matches!(authority.trustworthy(), Err(AuthorityError::Unusable { .. })));
    }
    std::fs::write(authority.authority_file(), &limited).unwrap();
    assert_eq!(authority.trustworthy().unwrap().unwrap().pem, limited);
}

/// TLS-05: keys are not written through a symbolic link in place of the directory.
#[test]
fn a_link_in_the_place_of_the_directory_is_refused() {
    let place = directory("linked");
    std::fs::create_dir(place.join("theirs")).unwrap();
    std::os::unix::fs::symlink(place.join("theirs"), place.join("tls")).unwrap();
    let authority = Authority::at(place.join("tls"));
    for refused in [authority.prepare(&[]).map(drop), authority.replace(&[])] {
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("symbolic link"), "{refused}");
    }
    assert_eq!(std::fs::read_dir(place.join("theirs")).unwrap().count(), 0);
}

/// TLS-05: a start within 60 days of its expiry renews the certificate with the same authority; an
/// earlier start does not.
#[test]
fn a_certificate_is_renewed_before_its_expiry() {
    let authority = Authority::at(directory("in-time"));
    authority.prepare(&[]).unwrap();
    let before = authority.kept().unwrap().unwrap();
    let text = |file: &str| std::fs::read_to_string(authority.directory().join(file)).unwrap();
    let key = KeyPair::from_pem(&text("authority.key")).unwrap();
    let issuer = Issuer::from_ca_cert_pem(&text("authority.pem"), key).unwrap();
    for (days, made) in [(61, PreparedFiles::Nothing), (59, PreparedFiles::Certificate)] {
        let own = names(&["localhost", "127.0.0.1", "::1"]);
        let mut params = CertificateParams::new(own).unwrap();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let end = now + Duration::from_secs(days * 24 * 3_600);
        params.not_after = date_time_ymd(1970, 1, 1) + end;
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &issuer).unwrap();
        std::fs::write(authority.directory().join("server.pem"), certificate.pem()).unwrap();
        std::fs::write(authority.directory().join("server.key"), key.serialize_pem()).unwrap();
        let written = authority.kept().unwrap().unwrap();
        assert_eq!(authority.prepare(&[]).unwrap(), made, "{days} days");
        let kept = authority.kept().unwrap().unwrap();
        assert_eq!(kept.authority, before.authority);
        assert_eq!(
            kept.certificate == written.certificate,
            made == PreparedFiles::Nothing,
            "{days} days"
        );
        assert_eq!(authority.prepare(&[]).unwrap(), PreparedFiles::Nothing, "{days} days");
    }
}

/// TLS-05: a further name needs a new authority, as the error states. A lost certificate is
/// recreated by the same authority.
#[test]
fn missing_files_are_created_by_the_same_authority() {
    run(async {
        let authority = Authority::at(directory("renewed"));
        authority.prepare(&[]).unwrap();
        let before = authority.kept().unwrap().unwrap();
        let error = authority.prepare(&names(&["bus.test"])).unwrap_err();
        assert!(matches!(&error, AuthorityError::OtherNames { name, .. } if name == "bus.test"));
        assert!(error.to_string().contains("--force"), "{error}");
        for wrong in ["", "a b", "-a", "a..b", "*.test", "http://a"] {
            let error = authority.prepare(&names(&[wrong])).unwrap_err();
            assert!(matches!(error, AuthorityError::NotAName(_)), "{wrong}");
        }
        let many = vec!["a.test".to_owned(); 65];
        assert!(matches!(authority.prepare(&many), Err(AuthorityError::TooMany(65))));

        for file in ["server.pem", "server.key"] {
            std::fs::remove_file(authority.directory().join(file)).unwrap();
            assert_eq!(authority.prepare(&[]).unwrap(), PreparedFiles::Certificate);
        }
        let after = authority.kept().unwrap().unwrap();
        assert_eq!(after.authority, before.authority);
        assert_ne!(after.certificate, before.certificate);
        let server = Server::start(authority.config()).await;
        let client = trusting_file(&authority.authority_file());
        let mut stream = server.connect(&client).await.unwrap();
        talk(&mut stream).await.unwrap();

        authority.replace(&names(&["bus.test"])).unwrap();
        assert_ne!(authority.kept().unwrap().unwrap().authority, before.authority);
        server.tls.reload().unwrap();
        assert!(server.connect(&client).await.is_err(), "the other one is not trusted yet");
        let client = trusting_file(&authority.authority_file());
        shown(&server.connect(&client).await.unwrap());

        std::fs::write(authority.authority_file(), "nonsense").unwrap();
        let error = authority.prepare(&[]).unwrap_err().to_string();
        assert!(error.contains("authority.pem") && error.contains("--force"), "{error}");
    });
}
