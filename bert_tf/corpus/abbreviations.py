"""Words with a full stop that does not end a sentence, in each language."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Abbreviations:
    """The words of a language before which or after which a full stop does not end a sentence."""

    # Words, in lower case, that hardly ever end a sentence: a name or a phrase follows.
    never_last: frozenset[str] = frozenset()
    # Words, in lower case, that are abbreviations if a number follows.
    before_number: frozenset[str] = frozenset()
    # Words that end a sentence only if one of the opening words follows.
    sometimes_last: frozenset[str] = frozenset()
    opening_words: frozenset[str] = frozenset()  # words that usually open a sentence
    # Whether a single letter with a full stop is always an abbreviation (`z. B.`).
    has_letters: bool = False
    # Whether a full stop after a number of one or two digits makes it an ordinal.
    has_ordinals: bool = False


ENGLISH = Abbreviations(
    never_last=frozenset(
        "mr mrs ms mx messrs mme mlle dr drs prof rev revd fr st ste hon gen lt col capt cpt cmdr "
        "adm maj sgt cpl pvt gov sen rep pres supt insp det mt ft vs viz cf eg ie e.g i.e v et ca "
        "approx esp incl resp univ dept gens profs sens reps lieut brig mgr msgr rt wm chas geo "
        "thos".split()
    ),
    before_number=frozenset(
        "no nos fig figs vol vols p pp ch chap sec sect art arts eq eqs op ver para pt nr c b d r "
        "est jan feb mar apr jun jul aug sep sept oct nov dec".split()
    ),
    sometimes_last=frozenset(
        "etc al esq ph.d m.d b.a m.a b.sc m.sc b.c a.d Inc Ltd Co Corp Bros Jr Sr Esq Ave Blvd Rd "
        "Hwy Jan Feb Mar Apr Jun Jul Aug Sep Sept Oct Nov Dec Ph.D M.Sc B.Sc Ariz Calif Colo Conn "
        "Fla Ill Kan Mass Mich Minn Miss Neb Nev Okla Penn Tenn Tex Va Wash Wis".split()
    ),
    opening_words=frozenset(
        "A After All Although An And Another As At Because Before Both But By Despite During Each "
        "For From He Her Here His How However I If In It Its Later Many Most My No Not On One "
        "Other Our Several She Since So Some Such That The Their Then There These They This Those "
        "Though Thus To Two Under Until We What When Where While Who With Yet You Your".split()
    ),
)
GERMAN = Abbreviations(
    never_last=frozenset(
        "dr prof hr hrn fr dipl ing bzw ca evtl ggf inkl exkl sog vgl insb bspw resp gem lt zzgl "
        "abzgl einschl ausschl allg ehem geb gest mind max min st jr nat rer phil med jur".split()
    ),
    before_number=frozenset(
        "nr nrn abb abs art bd kap s seite tab tel ziff anm fig vers jan feb mär apr jun jul aug "
        "sep sept okt nov dez".split()
    ),
    has_letters=True,
    has_ordinals=True,
)
FRENCH = Abbreviations(
    never_last=frozenset("mm mme mlle mmes dr pr me mgr st ste cf env ex av bd éd dir".split()),
    before_number=frozenset("no nos fig p pp art chap vol tab éq janv févr avr juil sept".split()),
    has_letters=True,
)
SPANISH = Abbreviations(
    never_last=frozenset(
        "sr sra srta sres dr dra prof profa ud uds lic ing gral av avda aprox ej pág págs "
        "dña".split()
    ),
    before_number=frozenset("núm nº fig p pp art cap vol tel".split()),
    has_letters=True,
)
ITALIAN = Abbreviations(
    never_last=frozenset("sig sigg dott prof avv ing arch on cfr es ecc pag pagg".split()),
    before_number=frozenset("fig p pp art cap vol tel num".split()),
    has_letters=True,
)
PORTUGUESE = Abbreviations(
    never_last=frozenset("sr sra srs dr dra prof profa eng exmo exma av pág aprox".split()),
    before_number=frozenset("núm fig p pp art cap vol tel".split()),
    has_letters=True,
)
RUSSIAN = Abbreviations(
    never_last=frozenset("им проф акад ул пр обл см ср напр тов гр св".split()),
    before_number=frozenset("рис стр табл гл ст".split()),
    has_letters=True,
)
_WITHOUT = (
    "am ar as bn bo fa gu he hi hy ja ka km kn ko lo ml mr my ne or pa sa si ta te th ti ur zh"
)
AUTO = "auto"
LANGUAGES: dict[str, Abbreviations] = {
    # Each script has its marks, whatever the language; only abbreviations need one.
    AUTO: ENGLISH,
    "en": ENGLISH,
    "de": GERMAN,
    "es": SPANISH,
    "fr": FRENCH,
    "it": ITALIAN,
    "pt": PORTUGUESE,
    "ru": RUSSIAN,
    **dict.fromkeys(_WITHOUT.split(), Abbreviations()),
}


def abbreviations_of(language: str) -> Abbreviations:
    """Returns the abbreviations of a language; ValueError if the language is unknown."""
    if language not in LANGUAGES:
        raise ValueError(
            f"--sentence_language={language}: no rules for the ends of its sentences are known; "
            f"expected one of {', '.join(sorted(LANGUAGES))}. {AUTO} has the marks of every script "
            "and the abbreviations of English."
        )
    return LANGUAGES[language]
