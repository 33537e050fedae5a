"""English word lists of the rule-based negation: closed classes, and verbs with their irregular forms."""

# Base, past, participle (if it differs). Verbs on neither list can still be recognised, by "-ed" or by nearby words.
_IRREGULAR, _, _REGULAR = """
arise arose arisen, bear bore born|borne, become became become, begin began begun, bind bound, blow blew blown, break
broke broken, bring brought, build built, burn burnt, buy bought, cast cast, catch caught, choose chose chosen, come
came come, cost cost, cut cut, deal dealt, draw drew drawn, drink drank drunk, drive drove driven, eat ate eaten, fall
fell fallen, feed fed, feel felt, fight fought, find found, fly flew flown, get got got|gotten, give gave given, go went
gone, grow grew grown, hear heard, hide hid hidden, hit hit, hold held, keep kept, know knew known, lay laid, lead led,
learn learnt, leave left, let let, lie lay lain, lose lost, make made, mean meant, meet met, overcome overcame overcome,
overthrow overthrew overthrown, pay paid, put put, read read, rebuild rebuilt, ride rode ridden, rise rose risen, run
ran run, say said, see saw seen, seek sought, sell sold, send sent, set set, shake shook shaken, shoot shot, show showed
shown, shut shut, sing sang sung, sink sank sunk, sit sat, sleep slept, speak spoke spoken, spend spent, split split,
spread spread, spring sprang sprung, stand stood, steal stole stolen, strike struck struck|stricken, take took taken,
teach taught, tell told, think thought, throw threw thrown, undergo underwent undergone, understand understood,
undertake undertook undertaken, wear wore worn, win won, withdraw withdrew withdrawn, write wrote written;
accept access accommodate account achieve acquire act add address adopt advance affect agree aid aim allow answer appeal
appear apply appoint approach argue arrive ask assert assist assume attack attempt attend attract avoid award base
believe belong benefit broadcast call capture carry cause celebrate challenge change charge check claim close collect
combine command comment commit communicate compete complete concern conclude conduct confirm connect consider consist
constitute construct contain continue contract contribute control convert copy correspond count cover create credit
cross damage date decide declare decrease defeat defend define deliver demand demonstrate denote depend depict derive
describe design destroy detect determine develop die differ direct discover discuss display distinguish divide document
drop earn elect eliminate emerge employ enable encourage end enforce engage enjoy ensure enter escape establish estimate
examine exceed exchange exhibit exist expand expect experience explain explore export express extend face facilitate
fail feature fill film finish fire fit focus follow force form function fund gain generate grant guard guide handle
happen head help honor hope host house identify impact implement imply import improve include incorporate increase
indicate influence inform introduce investigate involve issue join judge kill lack last launch limit link list live look
maintain manage mark marry match matter measure mention model monitor move murder name need note number observe obtain
occupy occur offer open operate order own paint participate pass perform permit pick place plan play point possess
practice predict prepare present preserve prevent proceed process produce promote propose protect protest prove provide
publish purchase pursue question race raise range rank reach react receive recognize record recover reduce refer reflect
regard register reject release rely remain remove repair replace report represent request require resemble resign
resolve respond restore result retain return reveal review rule save score search secure seem select separate serve
settle shape share shift ship sign signal solve sound stage star start state stay stem step stop store struggle study
succeed suffer suggest suit supply support survive switch talk target tend test tour trace trade train transfer
transform transport travel treat try turn use vary view visit vote walk want watch wish witness work yield
""".partition(";")


def word_set(words: str) -> frozenset[str]:
    """Return the words of a text."""
    return frozenset(words.split())


MODAL = word_set("can could will would shall should may might must 'll 'd ca wo sha")
FINITE_BE = word_set("am is are was were 's 're 'm")
BE = FINITE_BE | {"be", "been", "being"}
AUXILIARY = MODAL | BE | word_set("have has had having 've do does did to")
DETERMINER = word_set("a an the this these those its his her their my our your whose no every each")
NUMBER = word_set("one two three four five six seven eight nine ten several many few most all both some any")
PREPOSITION = word_set(
    "of in on at by for with from into onto during through over under between among against about without within per as"
    " near across behind beyond despite toward towards upon via like unlike than until since after before to"
)
SUBJECT = word_set("i he she it they we you there")
WITH_IS = word_set("he she it this that there who what where here")
WITH_ARE = word_set("i we you they these those many both others")
LINK = word_set("who which whom whose where that when while because although though if whereas unless")
OPENER = (LINK - {"that"}) | word_set("after before since as until once what whatever whether")
ADVERBIAL = PREPOSITION | word_set("year month week day night morning evening spring summer autumn winter season time")
ADVERB = word_set(
    "also then still now never often always only once again soon well best better first last later ever just both all "
    "each even more most less very so thus therefore however instead too already yet almost long far"
)
MISLEADING = word_set(  # no adverb, participle or past form despite their endings
    "family assembly ally fly july king thing something nothing anything everything during spring string ring wing"
    " evening morning ceiling hundred need seed speed feed breed indeed sacred hatred naked deed exceed proceed succeed"
)
FUNCTION = DETERMINER | NUMBER | PREPOSITION | SUBJECT | OPENER | MODAL | BE | {"and", "or", "that", "here"}
BREAK = frozenset(',;:(–—-"“”')
_IRREGULARS = [row.split() for row in _IRREGULAR.split(",")]
BASE = frozenset([row[0] for row in _IRREGULARS] + _REGULAR.split() + ["be", "have", "do"])
PAST = {row[1]: row[0] for row in _IRREGULARS} | {"had": "have", "did": "do"}
PARTICIPLE = frozenset(form for row in _IRREGULARS for form in row[-1].split("|")) | {"been", "had", "done"}
ONLY_PAST = (PAST.keys() - PARTICIPLE) | {"had"}
